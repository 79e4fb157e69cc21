package sqlite

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// disk stands between SQLite and the files of one directory, and knows what of each would
// survive the loss of power: what was written before the last sync of the file. What was
// written since may or may not.
type disk struct {
	dir   string
	mu    sync.Mutex
	files map[string]*diskFile
	open  map[uintptr]*diskFile // by sqlite3_file
	lies  bool                  // syncs are forgotten

	// The call (a write, a truncation or a sync) that fails, counted down to 0, and with
	// what; negative: none.
	fails  int
	failed int32
}

// fail makes the n-th call from now on fail, once.
func (d *disk) fail(n int, code int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails, d.failed = n, code
}

// pending tells whether the call that is to fail is still to come.
func (d *disk) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fails >= 0
}

// failing is the code of a call that is to fail now; d is locked.
func (d *disk) failing() int32 {
	if d.fails < 0 {
		return lib.SQLITE_OK
	}
	if d.fails--; d.fails < 0 {
		return d.failed
	}
	return lib.SQLITE_OK
}

type diskFile struct {
	name    string
	safe    []byte
	pending []func([]byte) []byte
	syncs   int
}

// theDisk is the one that is in use: the wrappers below are plain functions.
var theDisk *disk

var diskWrapped struct {
	open    func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	remove  func(*libc.TLS, uintptr, uintptr, int32) int32
	methods map[uintptr]uintptr // wrapped by the method table they wrap
	tables  map[uintptr]*lib.Tsqlite3_io_methods
}

// interpose puts a disk under every connection that is opened on a file of dir until the test ends.
func interpose(t *testing.T, dir string) *disk {
	t.Helper()
	d := &disk{fails: -1, dir: dir, files: make(map[string]*diskFile), open: make(map[uintptr]*diskFile)}
	theDisk = d
	diskWrapped.methods = make(map[uintptr]uintptr)
	diskWrapped.tables = make(map[uintptr]*lib.Tsqlite3_io_methods)

	tls := libc.NewTLS()
	lib.Xsqlite3_initialize(tls)
	before := lib.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString("belay-disk")
	if err != nil {
		t.Fatal(err)
	}
	size := libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_vfs{}))
	mine := libc.Xmalloc(tls, size)
	libc.Xmemcpy(tls, mine, before, size)
	v := (*lib.Tsqlite3_vfs)(pointer(mine))
	diskWrapped.open = goFunc[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](v.FxOpen)
	diskWrapped.remove = goFunc[func(*libc.TLS, uintptr, uintptr, int32) int32](v.FxDelete)
	v.FpNext, v.FzName, v.FxOpen, v.FxDelete = 0, name, cFunc(diskOpen), cFunc(diskDelete)
	if rc := lib.Xsqlite3_vfs_register(tls, mine, 1); rc != lib.SQLITE_OK {
		t.Fatalf("register the VFS: %d", rc)
	}
	t.Cleanup(func() {
		lib.Xsqlite3_vfs_register(tls, before, 1)
		lib.Xsqlite3_vfs_unregister(tls, mine)
		tls.Close()
	})
	return d
}

func cFunc[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

func goFunc[F any](p uintptr) F {
	return (*struct{ f F })(unsafe.Pointer(&struct{ p uintptr }{p})).f
}

// pointer is an address in SQLite's memory, which is not Go's and does not move.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func methodsOf(file uintptr) *lib.Tsqlite3_io_methods {
	return diskWrapped.tables[(*lib.Tsqlite3_file)(pointer(file)).FpMethods]
}

func diskOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := diskWrapped.open(tls, vfs, name, file, flags, out)
	f := (*lib.Tsqlite3_file)(pointer(file))
	d := theDisk
	if rc != lib.SQLITE_OK || name == 0 || f.FpMethods == 0 || filepath.Dir(libc.GoString(name)) != d.dir {
		return rc
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	real := f.FpMethods
	wrapped, known := diskWrapped.methods[real]
	if !known {
		table := *(*lib.Tsqlite3_io_methods)(pointer(real))
		original := table
		size := libc.Tsize_t(unsafe.Sizeof(table))
		wrapped = libc.Xmalloc(tls, size)
		table.FxWrite, table.FxTruncate, table.FxSync, table.FxClose = cFunc(diskWrite), cFunc(diskTruncate), cFunc(diskSync), cFunc(diskClose)
		*(*lib.Tsqlite3_io_methods)(pointer(wrapped)) = table
		diskWrapped.methods[real] = wrapped
		diskWrapped.tables[wrapped] = &original
	}
	f.FpMethods = wrapped
	path := libc.GoString(name)
	if d.files[path] == nil {
		d.files[path] = &diskFile{name: filepath.Base(path)}
		d.files[path].safe, _ = os.ReadFile(path)
	}
	d.open[file] = d.files[path]
	return rc
}

// diskDelete counts as flushed: SQLite syncs the directory where it matters to it.
func diskDelete(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, libc.GoString(name))
	return diskWrapped.remove(tls, vfs, name, syncDir)
}

func diskWrite(tls *libc.TLS, file, buf uintptr, n int32, at int64) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	if rc := d.failing(); rc != lib.SQLITE_OK {
		return rc
	}
	rc := goFunc[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](methodsOf(file).FxWrite)(tls, file, buf, n, at)
	if rc == lib.SQLITE_OK {
		data := bytes.Clone(unsafe.Slice((*byte)(pointer(buf)), n))
		d.open[file].pending = append(d.open[file].pending, func(b []byte) []byte {
			if end := int(at) + len(data); end > len(b) {
				b = append(b, make([]byte, end-len(b))...)
			}
			copy(b[at:], data)
			return b
		})
	}
	return rc
}

func diskTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	if rc := d.failing(); rc != lib.SQLITE_OK {
		return rc
	}
	rc := goFunc[func(*libc.TLS, uintptr, int64) int32](methodsOf(file).FxTruncate)(tls, file, size)
	if rc == lib.SQLITE_OK {
		d.open[file].pending = append(d.open[file].pending, func(b []byte) []byte { return b[:min(int(size), len(b))] })
	}
	return rc
}

func diskSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	if rc := d.failing(); rc != lib.SQLITE_OK {
		return rc
	}
	rc := goFunc[func(*libc.TLS, uintptr, int32) int32](methodsOf(file).FxSync)(tls, file, flags)
	// A normal flush may stop at the drive's cache.
	full := flags&0x0f == lib.SQLITE_SYNC_FULL
	if f := d.open[file]; rc == lib.SQLITE_OK && full && !d.lies {
		f.syncs++
		for _, write := range f.pending {
			f.safe = write(f.safe)
		}
		f.pending = nil
	}
	return rc
}

func diskClose(tls *libc.TLS, file uintptr) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, file)
	return goFunc[func(*libc.TLS, uintptr) int32](methodsOf(file).FxClose)(tls, file)
}

// syncs is how often a file of that name was flushed.
func (d *disk) syncs(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if f.name == name {
			return f.syncs
		}
	}
	return 0
}

// losePower writes what is left when the power fails now into a directory: what was
// flushed, and of the rest each write or not, as r draws.
func (d *disk) losePower(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	d.mu.Lock()
	images := make(map[string][]byte)
	for _, f := range d.files {
		image := bytes.Clone(f.safe)
		for _, write := range f.pending {
			if r.IntN(2) == 0 {
				image = write(image)
			}
		}
		images[f.name] = image
	}
	d.mu.Unlock()
	for name, image := range images {
		if err := os.WriteFile(filepath.Join(dir, name), image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
