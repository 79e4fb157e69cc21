package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// widerThan is always nothing: access lists, not modes, govern files there, and a
// directory of the user's profile is closed to others by default.
func widerThan(fs.FileInfo, fs.FileMode) fs.FileMode { return 0 }

func isReadOnlyMedium(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

// mayWrite is nothing new there: SQLite's own error says it.
func mayWrite(string) error { return nil }

func networkFileSystem(dir string) (kind string, remote bool) {
	volume := filepath.VolumeName(dir)
	if strings.HasPrefix(volume, `\\`) {
		return "a network share", true
	}
	root, err := windows.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", false
	}
	return "a network drive", windows.GetDriveType(root) == windows.DRIVE_REMOTE
}

// syncPath flushes a file to the disk. Directories cannot be flushed there.
func syncPath(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
