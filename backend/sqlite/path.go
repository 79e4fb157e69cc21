package sqlite

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/belay-run/belay/backend"
)

// Scheme is the prefix of a DSN of this backend: sqlite:PATH, or sqlite://PATH.
const Scheme = "sqlite:"

// Path is the file a path or a DSN names, absolute. A DSN is the scheme and a path,
// taken as it stands: '?', '#', '%' and spaces are characters of the name, and there are no
// parameters, since options come as Options.
func Path(dsn string) (string, error) {
	path, isDSN := strings.CutPrefix(dsn, Scheme)
	if isDSN {
		path = strings.TrimPrefix(path, "//")
	}
	switch {
	case path == "":
		return "", &OpenError{Path: dsn, Problem: ProblemPath, Remedy: "name a file, as in sqlite:belay.db"}
	case path == ":memory:":
		return "", &OpenError{
			Path: dsn, Problem: ProblemPath,
			Remedy: "runs that need not outlive the process belong to the backend memory (memory: on the command line)",
		}
	case strings.ContainsRune(path, 0):
		return "", &OpenError{Path: dsn, Problem: ProblemPath, Remedy: "take the NUL character out of it"}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", &OpenError{Path: dsn, Problem: ProblemPath, Err: err, Remedy: "pass an absolute path"}
	}
	return absolute, nil
}

// HostDSN is how a host opens the store's file with database/sql and the driver
// modernc.org/sqlite, for tables of its own and for Store.WithTx: with the busy timeout
// and foreign keys of the store, and transactions that take the write lock when they
// begin, so that they wait for other writers instead of failing.
func (s *Store) HostDSN() string {
	q := url.Values{}
	q.Set("_busy_timeout", milliseconds(s.opts.BusyTimeout))
	q.Set("_foreign_keys", "1")
	q.Set("_synchronous", string(s.opts.Synchronous))
	q["_pragma"] = []string{"fullfsync(1)", "checkpoint_fullfsync(1)"}
	q.Set("_txlock", "immediate")
	return fileURI(s.path, "rw", q)
}

// fileURI is SQLite's URI of an absolute path, every character of the name kept.
func fileURI(path, mode string, q url.Values) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a Windows drive
	}
	var b strings.Builder
	b.WriteString("file://")
	for i := range len(slashed) {
		switch c := slashed[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/-_.~:", c) >= 0:
			b.WriteByte(c)
		default:
			const hex = "0123456789ABCDEF"
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	b.WriteString("?mode=" + mode)
	if len(q) > 0 {
		b.WriteString("&" + q.Encode())
	}
	return b.String()
}

// tenantOf is the owner column of an owner: tenantless is the empty text, which no
// tenant is.
func tenantOf(o backend.Owner) string {
	id, _ := o.Tenant()
	return id
}

func ownerOf(column string) backend.Owner {
	if column == "" {
		return backend.Tenantless()
	}
	return backend.Tenant(column)
}

// ownerArg is a statement's "owner or null" of a scope.
func ownerArg(s backend.Scope) any {
	if o, ok := s.Owner(); ok {
		return tenantOf(o)
	}
	return nil
}
