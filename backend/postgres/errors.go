package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belay-run/belay/backend"
)

// SQLSTATE codes that decide something here.
const (
	codeUniqueViolation       = "23505"
	codeSerializationFailure  = "40001"
	codeStatementUnknown      = "40003"
	codeDeadlock              = "40P01"
	codeInvalidLogin          = "28" // the class
	codeUnknownDatabase       = "3D000"
	codeInsufficientPrivilege = "42501"
	codeDuplicatePrepared     = "42P05"
	codeDuplicateTable        = "42P07"
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
	n := natureOf(err)
	if n != backend.Unknown {
		return n
	}
	// No statement was sent, or none was committed.
	if _, ok := errors.AsType[*undone](err); ok || isConnecting(err) {
		return backend.Transient
	}
	return n
}

// undone is a failure of what nothing came of: its statement was not sent, or its transaction not committed.
type undone struct{ err error }

func (u *undone) Error() string { return u.err.Error() }
func (u *undone) Unwrap() error { return u.err }

func natureOf(err error) backend.Nature {
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
	// That its connection is closed may be all that the driver has to say of a statement under which it was
	// lost, however safe to repeat it calls that.
	if pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return backend.Transient
	}
	return backend.Unknown
}

// isConnecting reports whether a connection could not be made.
func isConnecting(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// isOfProxy reports whether a proxy in between has answered, and not the server: it ends the
// connection with a code that a server sends only while it keeps one.
func isOfProxy(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == codeProtocolViolation && e.Severity == "FATAL"
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
	if _, remedy := diagnose(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}

// diagnose says what is wrong with a server, or with the way to it, and what to do.
func diagnose(err error) (Problem, string) {
	c := code(err)
	switch {
	case c == codeUnknownDatabase:
		return ProblemDatabase, "create it, with encoding UTF8, or correct its name in the address"
	case c == codeInsufficientPrivilege && isConnecting(err):
		return ProblemLogin, "grant the role connect on the database"
	case strings.HasPrefix(c, codeInvalidLogin):
		return ProblemLogin, "check the user and the password that the address (or the environment) names, and what the server's pg_hba.conf allows"
	case c == codeTooManyConnections:
		return ProblemConnections, "lower pool_max_conns of the programs on this server, raise its max_connections (or the limit of the role or the database), " +
			"or let them share connections through a proxy"
	case c == codeCannotConnectNow:
		return ProblemStarting, "wait until it is up; its log says what it does"
	case c == codeReadOnly:
		return ProblemReadOnly, "connect to the primary (an address with every host and target_session_attrs=read-write finds it), " +
			"or see who has set default_transaction_read_only"
	case isOfProxy(err):
		return ProblemProxy, "see its log: its pool or the server's connections may be used up, or it does not know the user or the database"
	case isConnecting(err):
		return ProblemConnect, "see that the server runs, and that this host and port reach it"
	case c == codeUndefinedPrepared || c == codeDuplicatePrepared || c == codeProtocolViolation:
		return ProblemServer, "if a proxy that pools transactions is in between, connect with default_query_exec_mode=exec " +
			"(or simple_protocol), or let the proxy carry prepared statements"
	case c == codeUndefinedTable || c == codeUndefinedColumn:
		return ProblemServer, "the schema is missing or of another version: migrate it"
	case c == codeInsufficientPrivilege:
		return ProblemPrivilege, "grant the role usage of the schema, and select, insert, update and delete on its tables"
	}
	return ProblemServer, ""
}

// groupBytes is how large the documents of a group may be together: what is beyond it goes singly, since a message
// to the server has at most 1 GiB.
const groupBytes = 64 << 20

// singly sends what a group left, one after the other, and answers each. Where the server is away for one it is for
// those after it, too: they are not sent, so that nobody waits for each of them again. open says that what
// became of the group is not known.
func singly(members []int, open bool, send func(n int) error, answer func(n int, err error)) {
	var away error
	for _, n := range members {
		if away != nil {
			answer(n, backend.StillOpen(away, open))
			continue
		}
		err := send(n)
		if isAway(err) {
			infra, _ := errors.AsType[*backend.InfrastructureError](err)
			away = &backend.InfrastructureError{Op: infra.Op, Nature: backend.Transient, Err: infra.Err}
		}
		answer(n, backend.StillOpen(err, open))
	}
}

// isAway reports whether a call failed because the server could not be reached or took no statement, and not by a
// lock that somebody holds on its run, or by what it says.
func isAway(err error) bool {
	infra, ok := errors.AsType[*backend.InfrastructureError](err)
	if !ok || infra.Nature == backend.Permanent {
		return false
	}
	switch c := code(infra.Err); c {
	case "", codeTooManyConnections, codeReadOnly, codeAdminShutdown, codeCrashShutdown, codeCannotConnectNow:
		return true
	default:
		return c[:2] == "08"
	}
}

// isEnded reports whether a context ended, and not the database's connection.
func isEnded(ctx context.Context) bool { return ctx.Err() != nil }
