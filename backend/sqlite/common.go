package sqlite

import (
	"sync"
	"time"

	"github.com/belay-run/belay/claim"
)

// shared is what the stores of one process that are open on one file have in common, so
// that it makes no difference through which of them a call goes: who listens, and how far the
// clock has come.
type shared struct {
	hub   hub
	floor floor
	users int
}

var files struct {
	sync.Mutex
	byPath map[string]*shared
}

// join is to be followed by one leave.
func join(path string) *shared {
	files.Lock()
	defer files.Unlock()
	if files.byPath == nil {
		files.byPath = make(map[string]*shared)
	}
	c := files.byPath[path]
	if c == nil {
		c = &shared{hub: hub{subs: make(map[*subscription]struct{})}}
		files.byPath[path] = c
	}
	c.users++
	return c
}

func leave(path string) {
	files.Lock()
	defer files.Unlock()
	c := files.byPath[path]
	if c.users--; c.users == 0 {
		delete(files.byPath, path)
	}
}

// clock makes any clock non-decreasing, over every store of the process on the file.
type clock struct {
	now   func() time.Time
	floor *floor
}

type floor struct {
	mu   sync.Mutex
	last time.Time
}

func (c clock) read() time.Time {
	f := c.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := claim.Instant(c.now()); t.After(f.last) {
		f.last = t
	}
	return f.last
}

// or is the instant given, and the clock's when none is.
func (c clock) or(given time.Time) time.Time {
	if given.IsZero() {
		return c.read()
	}
	return given
}
