package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// creating serializes the part of Open that has a descriptor of its own on the file.
// Closing a descriptor drops every POSIX lock that the process holds on the file, so
// nothing else of this package opens the file but SQLite itself: this only for a file that it has
// just created, and isOther only for one that no store of the process has open.
var creating sync.Mutex

// siblings are the files SQLite keeps beside a database in WAL mode.
var siblings = []string{"", "-wal", "-shm", "-journal"}

// statfs tells whether a directory is on a network file system.
var statfs = networkFileSystem

// access tells why a file may not be written. It opens nothing (see creating).
var access = mayWrite

// prepareFile checks directory and file, and creates the file, closed to others.
func prepareFile(path string, opts Options) error {
	dir := filepath.Dir(path)
	// First what no mode and no other disk would mend: nobody should close his own files to
	// others because of a name mistyped.
	if err := checkKind(path); err != nil {
		return err
	}
	if err := prepareDirectory(path, dir, opts); err != nil {
		return err
	}
	if !opts.NetworkFileSystem {
		if kind, remote := statfs(dir); remote {
			return &OpenError{
				Path: path, Problem: ProblemNetwork, Err: errors.New(kind),
				Remedy: "use a local disk, or set Options.NetworkFileSystem if all its processes are on one host",
			}
		}
	}
	for _, suffix := range siblings {
		info, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return cannotAccess(path, err)
		case !info.Mode().IsRegular():
			return &OpenError{Path: path, Problem: ProblemPath, Remedy: fmt.Sprintf("%s is not a regular file: name another", path+suffix)}
		}
		if wide := widerThan(info, 0o600); wide != 0 {
			return &OpenError{
				Path: path, Problem: ProblemPermissions, Err: fmt.Errorf("%s has mode %#o", path+suffix, info.Mode().Perm()),
				Remedy: fmt.Sprintf("close it with: chmod 600 %q", path+suffix),
			}
		}
	}
	return create(path)
}

// checkKind refuses what is there and is no database, or not only one.
func checkKind(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(path); err == nil {
			return &OpenError{
				Path: path, Problem: ProblemDanglingLink, Err: fmt.Errorf("it points to %s", to),
				Remedy: "name the file itself to have it created, or mount or restore what it points to",
			}
		}
	}
	if err != nil || !info.Mode().IsRegular() {
		return nil // what follows says why
	}
	if isOther(path) {
		return &OpenError{Path: path, Problem: ProblemNotDatabase, Remedy: "name another file; this one was not touched"}
	}
	if n := links(info); n > 1 {
		return &OpenError{
			Path: path, Problem: ProblemHardLinks, Err: fmt.Errorf("%d hard links", n),
			Remedy: fmt.Sprintf("with two names it has two logs, which destroy it: stop every process that uses it, find the names with: find DIRECTORY -samefile %q, "+
				"and remove all but one; a symbolic link may stand for it", path),
		}
	}
	return nil
}

// magic begins every SQLite database.
const magic = "SQLite format 3\x00"

// isOther reports whether a file is one of another kind. One that is empty, or that cannot be read,
// may be a database, and one that a store of this process has open is.
func isOther(path string) bool {
	files.Lock() // no store of the process opens it meanwhile
	defer files.Unlock()
	if files.byPath[path] != nil {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	return string(head[:n]) != magic[:n]
}

// createDirectory makes a directory and its parents, and flushes the entries that lead to it:
// without them a file that survives a power loss could not be found.
func createDirectory(dir string) error {
	above := filepath.Dir(dir)
	if _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) && above != dir {
		if err := createDirectory(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncPath(above)
}

func prepareDirectory(path, dir string, opts Options) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) && opts.CreateDirectory {
		if err := createDirectory(dir); err != nil {
			return cannotAccess(path, err)
		}
		info, err = os.Stat(dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &OpenError{
			Path: path, Problem: ProblemNoDirectory, Err: err,
			Remedy: fmt.Sprintf("create it with: mkdir -m 700 %q, or set Options.CreateDirectory", dir),
		}
	case err != nil:
		return cannotAccess(path, err)
	case !info.IsDir():
		return &OpenError{Path: path, Problem: ProblemNoDirectory, Err: fmt.Errorf("%s is a file", dir), Remedy: "name a file in a directory"}
	}
	allowed := fs.FileMode(0o700)
	hint := ", or set Options.SharedDirectory"
	if opts.SharedDirectory {
		allowed, hint = 0o755, ""
	}
	if wide := widerThan(info, allowed); wide != 0 {
		return &OpenError{
			Path: path, Problem: ProblemPermissions, Err: fmt.Errorf("%s has mode %#o", dir, info.Mode().Perm()),
			Remedy: fmt.Sprintf("close it with: chmod %o %q%s", allowed, dir, hint),
		}
	}
	return nil
}

// create makes the file with mode 0600 unless it exists. SQLite gives -wal and -shm
// the mode of the file they stand beside.
func create(path string) error {
	creating.Lock()
	defer creating.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return cannotAccess(path, err)
	}
	return f.Close()
}

func cannotAccess(path string, err error) error {
	if isReadOnlyMedium(err) {
		return readOnly(path, err)
	}
	problem, remedy := ProblemSystem, ""
	if errors.Is(err, fs.ErrPermission) {
		problem, remedy = ProblemAccess, "run as the user who owns the file and its directory"
	}
	return &OpenError{Path: path, Problem: problem, Remedy: remedy, Err: err}
}

func readOnly(path string, err error) error {
	return &OpenError{
		Path: path, Problem: ProblemReadOnly, Err: err,
		Remedy: "a store writes: copy the file to a writable disk, or mount its medium writable",
	}
}
