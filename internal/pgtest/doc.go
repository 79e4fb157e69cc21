// Package pgtest gives tests a PostgreSQL server.
//
// The server of BELAY_TEST_DSN is used when that is set. Otherwise a throwaway cluster is
// started from the binaries found in BELAY_TEST_PG_BIN, in PATH or below
// /usr/lib/postgresql, and shared by every test process that runs at the time. The server
// belongs to a user that is not root, listens on a socket in a folder of its own and on no
// network, and is gone a few seconds after the last process that used it has ended,
// however it ended.
//
// Without either, a test fails and says what to do. It never skips.
package pgtest

// T is what the package needs of a test. *testing.T, *testing.B and *rapid.T satisfy it.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(f func())
}
