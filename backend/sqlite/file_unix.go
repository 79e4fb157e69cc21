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
