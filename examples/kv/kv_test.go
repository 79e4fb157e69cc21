package kv

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/value"
)

func TestConformance(t *testing.T)  { proptest.Conformance(t, open, proptest.Options{}) }
func TestCheck(t *testing.T)        { proptest.Check(t, open, proptest.Options{Rounds: 1}) }
func TestLinearizable(t *testing.T) { proptest.Linearizable(t, open, proptest.Options{}) }

// Histories on which some store went wrong.
func TestCounterexamples(t *testing.T) { proptest.Counterexamples(t, open) }

// open makes an empty store in a folder of its own. The hooks are optional: each lets the kit
// try what the operations alone cannot bring about.
func open(t proptest.T) proptest.Opened {
	t.Helper()
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var set atomic.Pointer[time.Time]
	var f *file
	reopen := func(t proptest.T) backend.Store {
		var err error
		f, err = openFile(filepath.Join(dir, "runs.db"), Options{NoSync: true, Now: func() time.Time {
			if now := set.Load(); now != nil {
				return *now
			}
			return time.Now()
		}})
		if err != nil {
			t.Fatalf("%v", err)
		}
		opened := f
		t.Cleanup(func() { _ = opened.Close() })
		return backend.FromApart(f, value.Limits{})
	}
	return proptest.Opened{Store: reopen(t), Hooks: proptest.Hooks{
		SetClock: func(now time.Time) { set.Store(&now) },
		Reopen: func(t proptest.T) backend.Store {
			if err := f.Close(); err != nil {
				t.Fatalf("closing: %v", err)
			}
			return reopen(t)
		},
		WriteDocument: func(_ context.Context, run string, raw []byte) error {
			return f.db.Update(func(b *bbolt.Tx) error {
				r, err := (&tx{Tx: b}).find(run)
				if err != nil {
					return err
				}
				r.Document = raw
				row, err := json.Marshal(r)
				if err != nil {
					return err
				}
				return b.Bucket(runsBucket).Put([]byte(run), row)
			})
		},
		WriteEvent: func(_ context.Context, run string, seq int64, raw []byte) error {
			return f.db.Update(func(b *bbolt.Tx) error { return b.Bucket(eventsBucket).Put(eventKey(run, seq), raw) })
		},
		WriteGraph: func(_ context.Context, owner backend.Owner, ref graph.Ref, raw []byte) error {
			return f.db.Update(func(b *bbolt.Tx) error {
				k := key(tenantOf(owner), ref.ID, ref.Hash)
				published := b.Bucket(graphsBucket).Get(k)[:8:8]
				return b.Bucket(graphsBucket).Put(k, append(published, raw...))
			})
		},
	}}
}

// TestOpenRefusesWhatIsNoDatabase: the one thing that the kit cannot know.
func TestOpenRefusesWhatIsNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("no database at all, but long enough to look like one to a careless reader"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(path, Options{}); err == nil {
		_ = s.Close()
		t.Error("it was opened")
	}
}
