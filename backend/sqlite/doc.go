// Package sqlite is the backend that keeps everything in one SQLite file: the embedded
// default, pure Go, without a server. It passes the whole contract and declares every
// feature of it.
//
// # One file, one writer, many readers
//
// A Store writes through one goroutine with one connection. What callers hand in while a
// transaction is being flushed shares the next one, so that many commits cost one flush,
// and an idle store adds no wait. Each caller gets its own answer: a refusal changes
// nothing, and a member of a group that fails after it wrote is undone by running the group
// again, each member in a savepoint. Reads go through a pool of connections that cannot
// write. MutateRun's function runs in the caller's goroutine, on a snapshot; only a run that
// moves quicker than the function decides is settled while the writer waits, for
// Options.MutateTimeout at most.
//
// Several stores, in one process or in many, may be open on one file. Other writers are
// waited for up to Options.BusyTimeout, and within it no caller sees a busy error. SQLite
// locks files, not rows: no row is ever skipped as locked, and RefreshClaims answers
// backend.ErrBusy for all of its members or for none. Subscribe tells of what is committed
// within the process; what other processes commit is found by polling. The rotation over
// owners (clause K5) is kept in the file, so it is one for all that poll it. The clock keeps
// from going back within a process.
//
// Every operation is in the write-ahead log, and with Options.Synchronous Full (the
// default) on the disk, before it is answered. The file is mode 0600 and its directory 0700,
// or the store is not opened. The file has one name (a symbolic link may stand for it): under a
// second one SQLite would keep a second log. Nothing else of the process should open the file except through
// SQLite: the operating system drops every lock that a process has on a file when any of its
// descriptors is closed. (modernc.org/sqlite.OFDLocking removes that trap on Linux. It
// is a switch of the whole process, so it is left to the program.)
//
// # The driver
//
// The driver is modernc.org/sqlite, used below database/sql. On two cores, with 1 KB
// documents, three events and synchronous FULL, fifty commits a transaction ran at 27,000/s
// (24,600 through database/sql; 30,500 with zombiezen.com/go/sqlite), claims with their
// documents at 68,000/s (59,000; 79,000) and single commits at 3,900/s (3,800; 4,000). The
// tenth that zombiezen is quicker did not outweigh that a host's own transaction is a *sql.Tx
// here, which is what hosts have, and that zombiezen was last released against a version of
// SQLite's translation more than a year older. docs/decisions/sqlite.md has the rest, with
// the measurements behind the layout of the tables.
package sqlite
