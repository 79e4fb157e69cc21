package proptest

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
)

// Opener makes a fresh, empty store each time it is called, and registers its closing
// with t.Cleanup. A failure to open is t.Fatalf.
type Opener func(t T) Opened

// Opened is a store under test.
type Opened struct {
	Store backend.Store
	Hooks Hooks
}

// Hooks reach what the contract's own operations cannot: damage, locks, the clock. Each
// is optional; the cases that need an absent one are reported as untested, never as passed.
type Hooks struct {
	// WriteDocument replaces the stored bytes of a run's document and nothing beside
	// them, past every check.
	WriteDocument func(ctx context.Context, run string, raw []byte) error
	// WriteEvent replaces the stored bytes of an event.
	WriteEvent func(ctx context.Context, run string, seq int64, raw []byte) error
	// WriteGraph replaces the stored bytes of a graph version.
	WriteGraph func(ctx context.Context, owner backend.Owner, ref graph.Ref, raw []byte) error
	// LockRun locks a run's row as another transaction does, until unlock is called.
	LockRun func(ctx context.Context, run string) (unlock func(), err error)
	// SetClock makes the backend's own clock answer now until it is set again.
	SetClock func(now time.Time)
	// Reopen closes the store and opens the same data again. The store it returns takes
	// the place of the one it closed, and is closed with t.Cleanup as well.
	Reopen func(t T) backend.Store
	// Host runs fn inside a transaction of the host's own (X8) and commits it when fn
	// answers nil, else rolls it back and answers fn's error.
	Host func(ctx context.Context, fn func(tx backend.Starter) error) error
	// Audit is the integrity check (X9): one line for each finding, none in a healthy store.
	Audit func(ctx context.Context) ([]string, error)
	// Trouble makes calls fail under way, for Check and Linearizable.
	Trouble *Trouble
}

// Trouble is what may go wrong beneath a store while it is called: a connection breaks at one of
// the next statements, before or after it took effect; a server is killed and comes back.
type Trouble struct {
	// Make makes one trouble, of a kind that draw decides, or arranges for it to come; it is called
	// by any caller, beside the calls of the others.
	Make func(draw func(n int) int)
	// Count is how many troubles have come about so far.
	Count func() int
	// Settle takes back what was arranged and has not come, and waits until what troubled calls left
	// behind beneath the store has come to its end: nothing takes effect after it. Without it, Check
	// makes no trouble.
	Settle func()
}
