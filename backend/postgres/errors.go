package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belay-run/belay/backend"
)

// SQLSTATE codes that decide something here.
const (
	codeUniqueViolation       = "23505"
	codeSerializationFailure  = "40001"
	codeStatementUnknown      = "40003"
	codeDeadlock              = "40P01"
	codeInsufficientPrivilege = "42501"
	codeDuplicatePrepared     = "42P05"
	codeUndefinedTable        = "42P01"
	codeUndefinedColumn       = "42703"
	codeUndefinedPrepared     = "26000"
	codeProtocolViolation     = "08P01"
	codeTooManyConnections    = "53300"
	codeLockNotAvailable      = "55P03"
	codeQueryCanceled         = "57014"
	codeAdminShutdown         = "57P01"
	codeCrashShutdown         = "57P02"
	codeCannotConnectNow      = "57P03"
	codeDataCorrupted         = "XX001"
	codeIndexCorrupted        = "XX002"
	codeReadOnly              = "25006"
	codeIdleInTransaction     = "25P03"
)

// failure is what the driver answered, as opposed to an answer of the contract.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// code is the SQLSTATE of an error, and empty for one that the server did not send.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// nature says what may be done about what the driver answered.
func nature(err error) backend.Nature {
	switch c := code(err); c {
	case "":
	case codeSerializationFailure, codeDeadlock, codeLockNotAvailable, codeQueryCanceled, codeCannotConnectNow,
		codeTooManyConnections, codeReadOnly, codeIdleInTransaction:
		return backend.Transient
	case codeStatementUnknown, codeAdminShutdown, codeCrashShutdown:
		// The session may have been ended after the commit, before its answer was sent.
		return backend.Unknown
	default:
		switch c[:2] {
		case "08":
			return backend.Unknown
		case "53":
			return backend.Transient
		}
		return backend.Permanent
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgconn.SafeToRetry(err) {
		return backend.Transient
	}
	return backend.Unknown
}

// fail makes the store's answer of an operation's error: an answer of the contract as it
// is, and what the driver said as *backend.InfrastructureError.
func fail(op string, err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return err
	}
	return &backend.InfrastructureError{Op: op, Nature: nature(f.err), Err: advise(f.err)}
}

// advise says what to do about errors that only the operator can cure.
func advise(err error) error {
	switch code(err) {
	case codeUndefinedPrepared, codeDuplicatePrepared, codeProtocolViolation:
		return fmt.Errorf("%w: if a proxy that pools transactions is in between, connect with default_query_exec_mode=exec "+
			"(or simple_protocol), or let the proxy carry prepared statements", err)
	case codeUndefinedTable, codeUndefinedColumn:
		return fmt.Errorf("%w: the schema is missing or of another version: migrate it", err)
	case codeInsufficientPrivilege:
		return fmt.Errorf("%w: grant the role usage of the schema, and select, insert, update and delete on its tables", err)
	}
	return err
}

// isEnded reports whether a context ended, and not the database's connection.
func isEnded(ctx context.Context) bool { return ctx.Err() != nil }
