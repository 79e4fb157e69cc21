package postgres

import "fmt"

// Problem names why a store was not opened.
type Problem string

// The problems.
const (
	// ProblemDSN: the connection string cannot be read.
	ProblemDSN Problem = "dsn"
	// ProblemConnect: there is no connection to the server.
	ProblemConnect Problem = "connect"
	// ProblemLogin: the server refuses the user, the password or the connection.
	ProblemLogin Problem = "login"
	// ProblemDatabase: there is no such database.
	ProblemDatabase Problem = "database"
	// ProblemConnections: the server has no connection left.
	ProblemConnections Problem = "too_many_connections"
	// ProblemStarting: the server is starting up, or shutting down.
	ProblemStarting Problem = "starting"
	// ProblemReadOnly: the server takes no writes, as a standby does not.
	ProblemReadOnly Problem = "read_only"
	// ProblemProxy: a proxy in between has refused.
	ProblemProxy Problem = "proxy"
	// ProblemVersion: the server is too old.
	ProblemVersion Problem = "server_version"
	// ProblemEncoding: the database does not store UTF-8.
	ProblemEncoding Problem = "encoding"
	// ProblemPrivilege: the role may not do what is needed.
	ProblemPrivilege Problem = "privilege"
	// ProblemBusy: others held the schema for longer than Options.SetupTimeout.
	ProblemBusy Problem = "busy"
	// ProblemOutdated: migrations are missing, and Options.VerifyOnly forbids applying them.
	ProblemOutdated Problem = "outdated_schema"
	// ProblemNewer: a newer belay has migrated the schema, and this one cannot work with it.
	ProblemNewer Problem = "newer_schema"
	// ProblemForeign: the schema has a table of something else, with a name that belay needs.
	ProblemForeign Problem = "foreign_table"
	// ProblemIndex: an index that was made beforehand is not the one that the migration makes.
	ProblemIndex Problem = "index"
	// ProblemLedger: a migration that was applied is not the one this build has.
	ProblemLedger Problem = "changed_migration"
	// ProblemServer: the server failed otherwise.
	ProblemServer Problem = "server"
)

// SetupError says why a store was not opened, and what to do. Nothing was changed.
type SetupError struct {
	Problem Problem
	// Remedy says what to do.
	Remedy string
	Err    error
}

func (e *SetupError) Error() string {
	what := "the server refuses"
	switch e.Problem {
	case ProblemDSN:
		// The driver's own words may quote the string, and the password in it.
		return "belay: the connection string cannot be read: " + e.Remedy
	case ProblemConnect:
		what = "there is no connection to the server"
	case ProblemLogin:
		what = "the server refuses the login"
	case ProblemDatabase:
		what = "there is no such database"
	case ProblemConnections:
		what = "the server has no connection left"
	case ProblemStarting:
		what = "the server takes no connections at present"
	case ProblemReadOnly:
		what = "the server takes no writes"
	case ProblemProxy:
		what = "a proxy in between refuses"
	case ProblemVersion:
		what = "the server is too old"
	case ProblemEncoding:
		what = "the database does not store UTF-8"
	case ProblemPrivilege:
		what = "the role may not do what is needed"
	case ProblemBusy:
		what = "the schema is held by others"
	case ProblemOutdated:
		what = "the schema is not up to date"
	case ProblemNewer:
		what = "the schema is newer than this program"
	case ProblemForeign:
		what = "the schema is in use by something else"
	case ProblemIndex:
		what = "an index of the schema cannot be used"
	case ProblemLedger:
		what = "the schema is of another build"
	}
	text := fmt.Sprintf("belay: open the PostgreSQL store: %s: %v", what, e.Err)
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Unwrap is the cause below.
func (e *SetupError) Unwrap() error { return e.Err }
