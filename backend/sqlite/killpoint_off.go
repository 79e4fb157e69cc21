//go:build !(belay_killpoints && unix)

package sqlite

// point does nothing. Builds with the tag belay_killpoints end the process there, for
// the tests of what a crash leaves behind.
func point(string) {}
