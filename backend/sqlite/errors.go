package sqlite

import (
	"errors"
	"fmt"

	driversqlite "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/backend"
)

// Problem names why a file was not opened.
type Problem string

// The problems.
const (
	// ProblemPath: the path is empty, or names a database that is not a file.
	ProblemPath Problem = "path"
	// ProblemDanglingLink: the path is a symbolic link to a file that does not exist.
	ProblemDanglingLink Problem = "dangling_link"
	// ProblemHardLinks: the file has a second name. SQLite finds the log by the name, so two
	// names have two logs, and each destroys what the other wrote.
	ProblemHardLinks Problem = "hard_links"
	// ProblemNoDirectory: the file's directory does not exist.
	ProblemNoDirectory Problem = "no_directory"
	// ProblemPermissions: others may read or write the file or its directory.
	ProblemPermissions Problem = "permissions"
	// ProblemNetwork: the file is on a network file system, whose locks and shared memory
	// do not hold between hosts.
	ProblemNetwork Problem = "network_file_system"
	// ProblemAccess: this process may not read or write the file.
	ProblemAccess Problem = "access"
	// ProblemReadOnly: the medium is read-only.
	ProblemReadOnly Problem = "read_only"
	// ProblemNotDatabase: the file is no SQLite database.
	ProblemNotDatabase Problem = "not_a_database"
	// ProblemDamaged: the file is cut off, or its pages or its schema are not what they
	// were when belay wrote them.
	ProblemDamaged Problem = "damaged"
	// ProblemForeign: the database belongs to another program, which keeps a schema
	// version of its own in it.
	ProblemForeign Problem = "foreign"
	// ProblemNewer: a newer belay has migrated the file.
	ProblemNewer Problem = "newer_schema"
	// ProblemLedger: a migration that was applied is not the one this build has.
	ProblemLedger Problem = "changed_migration"
	// ProblemSetting: a setting did not take; OpenError.Setting names it.
	ProblemSetting Problem = "setting"
	// ProblemBusy: another process held the file for longer than the busy timeout.
	ProblemBusy Problem = "busy"
	// ProblemSystem: the operating system or SQLite failed otherwise.
	ProblemSystem Problem = "system"
)

// OpenError says why a file was not opened, and what to do. Nothing was changed,
// except that an empty file may have been created.
type OpenError struct {
	Path    string
	Problem Problem
	// Setting, Want and Got are set with ProblemSetting.
	Setting, Want, Got string
	// Remedy says what to do.
	Remedy string
	Err    error // the cause below, when there is one
}

func (e *OpenError) Error() string {
	what := string(e.Problem)
	switch e.Problem {
	case ProblemPath:
		what = "this is not the path of a file"
	case ProblemDanglingLink:
		what = "it is a link to a file that does not exist"
	case ProblemHardLinks:
		what = "the file has more than one name"
	case ProblemNoDirectory:
		what = "its directory does not exist"
	case ProblemPermissions:
		what = "others may read or write it"
	case ProblemNetwork:
		what = "it is on a network file system"
	case ProblemAccess:
		what = "this process may not use it"
	case ProblemReadOnly:
		what = "it is on a read-only medium"
	case ProblemNotDatabase:
		what = "it is not an SQLite database"
	case ProblemDamaged:
		what = "it is damaged"
	case ProblemForeign:
		what = "it belongs to another program"
	case ProblemNewer:
		what = "a newer version of belay has written it"
	case ProblemLedger:
		what = "it was migrated by another build"
	case ProblemSetting:
		what = fmt.Sprintf("the setting %s is %s, not %s", e.Setting, e.Got, e.Want)
	case ProblemBusy:
		what = "another process keeps it locked"
	case ProblemSystem:
		what = "it cannot be opened"
	}
	text := fmt.Sprintf("belay: open %q: %s", e.Path, what)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Unwrap is the cause below.
func (e *OpenError) Unwrap() error { return e.Err }

// resultCode is SQLite's extended result code, and 0 for errors that are not its own.
func resultCode(err error) int {
	if e, ok := errors.AsType[*driversqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

func primary(err error) int { return resultCode(err) & 0xff }

// isBusy: another connection holds what was wanted; the same call may succeed later.
func isBusy(err error) bool {
	switch primary(err) {
	case code.SQLITE_BUSY, code.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// isDuplicate: a unique index refused a row.
func isDuplicate(err error) bool {
	switch resultCode(err) {
	case code.SQLITE_CONSTRAINT_UNIQUE, code.SQLITE_CONSTRAINT_PRIMARYKEY:
		return true
	}
	return false
}

// fail wraps what the driver answered as a failure below the contract; answers of the
// contract pass as they are. With committing, the failure was COMMIT's.
func fail(op string, err error, committing bool) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*backend.InfrastructureError](err); ok {
		return err
	}
	nature := backend.Permanent
	switch primary(err) {
	case 0:
		return err
	case code.SQLITE_BUSY, code.SQLITE_PROTOCOL, code.SQLITE_LOCKED, code.SQLITE_FULL, code.SQLITE_NOMEM,
		code.SQLITE_INTERRUPT, code.SQLITE_SCHEMA, code.SQLITE_ABORT:
		nature = backend.Transient
	case code.SQLITE_IOERR, code.SQLITE_CANTOPEN:
		nature = backend.Transient
		if committing {
			// The frames may have reached the log, and a recovery may find them.
			nature = backend.Unknown
		}
	}
	return &backend.InfrastructureError{Op: op, Nature: nature, Err: err}
}
