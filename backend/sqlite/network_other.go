//go:build unix && !linux && !darwin && !freebsd

package sqlite

// networkFileSystem cannot tell on this system.
func networkFileSystem(string) (kind string, remote bool) { return "", false }
