package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// TestManyWorkersAtOnceLeaveAConsistentStore lets workers do everything at once, under the
// race detector, and then looks at the store's insides and at what was promised: no token
// twice, no (run, sequence) committed twice (A7, C1).
func TestManyWorkersAtOnceLeaveAConsistentStore(t *testing.T) {
	store := memory.New(memory.Options{Yield: func(string) { runtime.Gosched() }})
	w := &workers{T: t, store: store, tokens: map[claim.Token]bool{}, committed: map[string]bool{}}
	for i := range 3 {
		o := backend.Tenant(fmt.Sprintf("t%d", i))
		w.owners = append(w.owners, o)
		w.refs = append(w.refs, publish(t, store, o, "g"))
	}
	ctx, stop := context.WithCancel(t.Context())
	woken, err := store.Subscribe(ctx)
	must(t, err)
	var listener, all sync.WaitGroup
	listener.Go(func() {
		for range woken {
		}
	})
	for i := range 6 {
		all.Go(func() { w.work(rand.New(rand.NewPCG(1, uint64(i))), 400) })
	}
	all.Wait()
	stop()
	listener.Wait()
	if err := store.Check(); err != nil {
		t.Error(err)
	}
	if w.commits < 100 {
		t.Errorf("only %d commits succeeded: the workers are in each other's way", w.commits)
	}
}

type workers struct {
	*testing.T
	store  *memory.Store
	owners []backend.Owner
	refs   []graph.Ref

	mu        sync.Mutex
	tokens    map[claim.Token]bool
	committed map[string]bool
	commits   int
}

func (w *workers) work(r *rand.Rand, steps int) {
	ctx := context.Background()
	now := func() time.Time { return at(time.Duration(r.IntN(100)) * time.Millisecond) }
	id := func() string { return fmt.Sprintf("r%03d", r.IntN(60)) }
	var leases []claim.Lease
	for i := range steps {
		switch n := r.IntN(100); {
		case n < 20:
			o := r.IntN(len(w.owners))
			in := initial(id(), w.refs[o], now())
			in.CheckpointID = checkpoint.ID(fmt.Sprintf("c%d", r.Uint64()))
			in.Document.Metadata = map[string]string{"insert": string(in.CheckpointID)}
			if r.IntN(10) == 0 {
				in.Key = fmt.Sprintf("k%d", r.IntN(5))
			}
			_, err := w.store.InsertRun(ctx, w.owners[o], in)
			w.expect(err, backend.ErrConflict)
		case n < 45:
			p := claim.Policy{Now: now(), TTL: 60 * time.Millisecond, Limit: 1 + r.IntN(5), MaxAttempts: 5, Fairness: claim.Fairness(r.IntN(2)), OwnerCap: r.IntN(2) * 20}
			batch, err := w.store.ClaimDue(ctx, p)
			w.expect(err)
			w.issued(batch)
			leases = append(leases, batch.Leases...)
		case n < 75 && len(leases) > 0:
			l := leases[len(leases)-1-r.IntN(min(4, len(leases)))]
			d, err := w.store.FetchRun(ctx, backend.System(), l.Run)
			w.expect(err, backend.ErrNotFound)
			if err != nil {
				continue
			}
			c := step(d, l.Token, now(), checkpoint.Schedule{Kind: checkpoint.ReleaseNow})
			if r.IntN(2) == 0 {
				c = completion(d, l.Token, now())
			}
			c.CheckpointID = checkpoint.ID(fmt.Sprintf("c%d", r.Uint64()))
			if d.Status != run.Running {
				continue
			}
			_, err = w.store.Commit(ctx, backend.System(), c)
			w.expect(err, checkpoint.ErrStaleFence, backend.ErrNotFound, backend.ErrInvalidCommit)
			if err == nil {
				w.applied(c)
			}
		case n < 80 && len(leases) > 0:
			l := leases[r.IntN(len(leases))]
			w.expect(w.store.RefreshClaim(ctx, l.Run, l.Token, now()), backend.ErrClaimLost)
			w.expect(w.store.ReleaseClaim(ctx, l.Run, l.Token, claim.ReleasePolicy{Now: now()}))
		case n < 84 && len(leases) > 0:
			l := leases[r.IntN(len(leases))]
			_, err := w.store.AbandonClaim(ctx, l.Run, l.Token, claim.AbandonPolicy{Now: now(), ExpectedSeq: l.Seq, MaxAbandons: 3})
			w.expect(err)
		case n < 90:
			_, err := w.store.MutateRun(ctx, backend.System(), id(), checkpoint.ID(fmt.Sprintf("c%d", r.Uint64())), cancel)
			w.expect(err, backend.ErrNotFound, run.ErrInactiveRun)
		case n < 93:
			w.expect(w.store.RetryPoisonedRun(ctx, backend.System(), id(), now()), backend.ErrNotFound, backend.ErrInactiveRun)
		case n < 96:
			_, err := w.store.Prune(ctx, backend.PrunePolicy{Before: now(), Limit: 3})
			w.expect(err)
		default:
			page, err := w.store.ListRuns(ctx, backend.Of(w.owners[i%3]), backend.Query{Limit: 5})
			w.expect(err)
			for _, s := range page.Runs {
				_, err := w.store.ListEvents(ctx, backend.System(), s.Run, backend.EventQuery{Limit: 10})
				w.expect(err, backend.ErrNotFound)
			}
		}
	}
}

// expect fails on an error that is none of the allowed ones.
func (w *workers) expect(err error, allowed ...error) {
	w.Helper()
	if err == nil {
		return
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	w.Error(err)
}

func (w *workers) issued(b claim.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range b.Leases {
		if w.tokens[l.Token] {
			w.Errorf("a token of %s was issued before", l.Run)
		}
		w.tokens[l.Token] = true
	}
}

// applied notes a commit. The metadata tells a run from an earlier one of the same id.
func (w *workers) applied(c backend.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits++
	key := fmt.Sprintf("%s, %d", c.Document.Metadata["insert"], c.Document.Seq)
	if w.committed[key] {
		w.Errorf("committed twice: run %s, sequence %d", c.Document.ID, c.Document.Seq)
	}
	w.committed[key] = true
}
