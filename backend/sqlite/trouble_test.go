package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/proptest"
)

// plague makes trouble beneath the latest store: the disk fails, the file is full or another process
// writes and goes on writing.
type plague struct {
	disk  *disk
	store *Store
	other *sql.DB
	armed bool // the disk
	count int
	err   error // of the trouble itself
}

func (p *plague) do(text string) error {
	return p.store.writer.do(context.Background(), &operation{name: "plague", run: func(c *conn, _ bool) error {
		return c.run(context.Background(), text)
	}})
}

func (p *plague) make(draw func(int) int) {
	switch kind := draw(5); kind {
	case 0, 1, 2:
		p.armed = true
		p.disk.fail(draw(12), []int32{lib.SQLITE_IOERR_WRITE, lib.SQLITE_FULL, lib.SQLITE_IOERR_FSYNC}[kind])
	case 3:
		p.count++
		_, p.err = p.other.Exec("begin immediate")
	case 4: // from here on a statement that needs another page fails
		p.count++
		p.err = p.do("pragma max_page_count = 1")
	}
}

func (p *plague) settle() {
	if p.armed && !p.disk.pending() {
		p.count++
	}
	p.armed = false
	p.disk.fail(-1, 0)
	_, _ = p.other.Exec("rollback") // or there is none
	if err := p.do("pragma max_page_count = 1073741823"); err != nil {
		p.err = err
	}
}

// TestCheckWithTroubleBeneath (H20, T5): random histories in which the disk fails at a drawn write, truncation
// or flush, statements find no room, and the file is locked by another process. Each call has one effect
// or none, and an answer that fits.
func TestCheckWithTroubleBeneath(t *testing.T) {
	dir := filepath.Dir(freshFile(t))
	p := &plague{disk: interpose(t, dir)}
	files := 0
	open := func(t proptest.T) proptest.Opened {
		t.Helper()
		files++
		path := filepath.Join(dir, fmt.Sprintf("belay-%d.db", files))
		// A small log, so that copying it into the file fails too.
		s, err := Open(context.Background(), path, Options{Synchronous: Normal, CheckpointPages: 8, BusyTimeout: 2 * time.Millisecond})
		if err != nil {
			t.Fatalf("%v", err)
		}
		other, err := sql.Open("sqlite", "file://"+path)
		if err != nil {
			t.Fatalf("%v", err)
		}
		other.SetMaxOpenConns(1)
		p.store, p.other = s, other
		t.Cleanup(func() {
			if err := other.Close(); err != nil {
				t.Errorf("%v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%v", err)
			}
		})
		return proptest.Opened{Store: s, Hooks: proptest.Hooks{
			Trouble: &proptest.Trouble{Make: p.make, Count: func() int { return p.count }, Settle: p.settle},
		}}
	}
	proptest.Conformance(t, open, proptest.Options{Only: []string{"T5"}, Log: func(string) {}})
	proptest.Check(t, open, proptest.Options{Rounds: 2})
	if p.err != nil || p.count == 0 {
		t.Errorf("%d troubles came about, and %v", p.count, p.err)
	}
}
