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

// links is not told there without opening the file.
func links(fs.FileInfo) uint64 { return 1 }

// isAlive reports whether there is a process with that id, of whomever.
func isAlive(pid int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return !errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer windows.CloseHandle(h)
	var code uint32
	const stillActive = 259
	return windows.GetExitCodeProcess(h, &code) != nil || code == stillActive
}

// renameNew gives a file another name, which nothing may have.
func renameNew(from, to string) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(old, name, windows.MOVEFILE_WRITE_THROUGH); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

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
