//go:build unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// widerThan is what the mode of info allows beyond allowed.
func widerThan(info fs.FileInfo, allowed fs.FileMode) fs.FileMode {
	return info.Mode().Perm() &^ allowed
}

func isReadOnlyMedium(err error) bool { return errors.Is(err, syscall.EROFS) }

// links is how many names a file has.
func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// isAlive reports whether there is a process with that id, of whomever.
func isAlive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// linkNew gives a file another name, which nothing may have, and takes the first one away.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

func mayWrite(path string) error {
	const write = 2
	return syscall.Access(path, write)
}

// syncPath flushes a file or a directory to the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
