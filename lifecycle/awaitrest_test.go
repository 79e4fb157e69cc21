package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// rests is a store that keeps what was committed of each run, and in which everything takes a while,
// before it takes effect and after.
type rests struct {
	*memory.Store
	features func(*backend.Features)
	pause    func()
	reads    atomic.Int64

	mu      sync.Mutex
	commits map[string][]kept
}

type kept struct {
	doc *run.Document
	at  time.Time
}

func (r *rests) Features() backend.Features {
	f := r.Store.Features()
	f.Batches = nil
	if r.features != nil {
		r.features(&f)
	}
	return f
}

// keep notes a commit as it takes effect. The caller holds the lock, so that nobody sees the one
// without the other.
func (r *rests) keep(d *run.Document) {
	if all := r.commits[d.ID]; len(all) > 0 && all[len(all)-1].doc.Seq >= d.Seq {
		return
	}
	r.commits[d.ID] = append(r.commits[d.ID], kept{d, time.Now()})
}

// last is a run's last commit.
func (r *rests) last(id string) kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.commits[id]
	return all[len(all)-1]
}

// at is a run's commit of a sequence.
func (r *rests) at(id string, seq int64) *run.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.commits[id] {
		if k.doc.Seq == seq {
			return k.doc
		}
	}
	return nil
}

func (r *rests) slowly() {
	if r.pause != nil {
		r.pause()
	}
}

// effect calls the store.
func effect[T any](r *rests, call func() (T, error)) (T, error) {
	r.slowly()
	defer r.slowly()
	r.mu.Lock()
	defer r.mu.Unlock()
	return call()
}

func (r *rests) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return effect(r, func() (backend.Inserted, error) {
		out, err := r.Store.InsertRun(ctx, owner, in)
		if err == nil {
			r.keep(in.Document)
		}
		return out, err
	})
}

func (r *rests) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	return effect(r, func() (backend.Committed, error) {
		out, err := r.Store.Commit(ctx, scope, c)
		if err == nil {
			r.keep(c.Document)
		}
		return out, err
	})
}

func (r *rests) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return effect(r, func() (backend.Mutated, error) {
		out, err := r.Store.MutateRun(ctx, scope, id, commit, fn)
		if err == nil && out.Committed {
			r.keep(out.Document)
		}
		return out, err
	})
}

func (r *rests) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	r.reads.Add(1)
	return effect(r, func() (backend.Info, error) { return r.Store.InspectRun(ctx, scope, id) })
}

// asking is a graph that works, asks, and works.
const asking = `
id: asking
nodes: {before: {use: work}, ask: {use: ask}, after: {use: work}}
edges: {in: {from: $start, to: before}, on: {from: before, to: ask}, then: {from: ask, to: after}, out: {from: after, to: $finish}}
`

// restEngine makes an engine whose nodes work as the test says.
func restEngine(t *testing.T, store backend.Store, work func(context.Context) error, cfg Config) *Engine {
	t.Helper()
	cfg.Backend = store
	cfg.Nodes = node.NewRegistry().Add(
		node.Of("work", 1, func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, work(ctx) }),
		node.Of("ask", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
			if _, ok, err := node.Answered[string](ctx, ""); ok || err != nil {
				return struct{}{}, err
			}
			return struct{}{}, node.Ask(node.Question{Prompt: "go on?"})
		}),
	)
	cfg.Logger = slog.New(slog.DiscardHandler)
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func restGraph(t *testing.T, c *Client) graph.Ref {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(asking))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := c.Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// serving lets an engine serve until the stop it answers is called.
func servingUntil(e *Engine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = e.Run(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-over
	}
}

// leftOver fails the test when an engine keeps anything of those who waited.
func leftOver(t *testing.T, engines ...*Engine) {
	t.Helper()
	for i, e := range engines {
		w, h := e.watch, e.beat
		w.mu.Lock()
		h.mu.Lock()
		if len(w.runs) != 0 || w.waiters.Load() != 0 || w.cancel != nil || len(h.runs) != 0 || h.count != 0 {
			t.Errorf("engine %d keeps %d awaited runs, %d waiters (subscribed: %v), %d runs held (%d)", i, len(w.runs), w.waiters.Load(), w.cancel != nil, len(h.runs), h.count)
		}
		h.mu.Unlock()
		w.mu.Unlock()
	}
}

// Whoever awaits, wherever and whenever, gets a rest that was true during the call, and not long
// after it began, whatever else happens to the run meanwhile and whoever does it.
func TestAwaitNeverMissesARestAndNeverAnswersAnOldOne(t *testing.T) {
	const (
		poll    = time.Second
		slowest = 50 * time.Millisecond
	)
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 7))
			n := func(below int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(below)
			}
			nap := func(most time.Duration) {
				time.Sleep(time.Duration(n(int(most/time.Millisecond)+1)) * time.Millisecond)
			}
			store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}, pause: func() {
				if n(2) == 0 {
					nap(slowest)
				}
			}}
			if seed%3 == 0 {
				store.features = func(f *backend.Features) { f.Wakes = nil }
			}
			work := func(context.Context) error {
				nap(300 * time.Millisecond)
				if n(6) == 0 {
					return node.Permanent(errors.New("no luck"))
				}
				return nil
			}
			var engines []*Engine
			for range 3 {
				engines = append(engines, restEngine(t, store, work, Config{PollInterval: poll, CommitBudget: 1 + n(3)}))
			}
			ref := restGraph(t, &engines[0].Client)
			stops := []func(){servingUntil(engines[0]), servingUntil(engines[1])}
			any := func() *Client { return &engines[n(3)].Client }

			var all sync.WaitGroup
			for i := range 4 {
				id := fmt.Sprint("run-", i)
				if _, err := any().Start(t.Context(), ref, nil, StartOptions{ID: id}); err != nil {
					t.Fatal(err)
				}
				all.Go(func() { // people
					for !store.last(id).doc.Status.Terminal() {
						nap(100 * time.Millisecond)
						for _, q := range (&Run{Document: store.last(id).doc}).OpenInterrupts() {
							if answered, err := any().Resolve(t.Context(), id, q.ID, "yes"); err == nil {
								r, err := any().Await(t.Context(), id)
								if err != nil || r.Seq <= answered.Seq {
									t.Errorf("seed %d: after the answer: %+v, %v", seed, r, err)
								}
							}
						}
						if n(60) == 0 {
							_, _ = any().Cancel(t.Context(), id, "enough")
						}
					}
				})
				for range 5 {
					all.Go(func() {
						for {
							nap(400 * time.Millisecond)
							before, began := store.last(id), time.Now()
							r, err := any().Await(t.Context(), id)
							if err != nil {
								t.Errorf("seed %d: %v", seed, err)
								return
							}
							if !atRest(r.Document) || r.Seq < before.doc.Seq || r.Owner != backend.Tenantless() {
								t.Errorf("seed %d: awaited %s at %d (owner %v), the run was at %d", seed, r.Status, r.Seq, r.Owner, before.doc.Seq)
							}
							if diff := cmp.Diff(store.at(id, r.Seq), r.Document); diff != "" {
								t.Errorf("seed %d: not what was committed: %s", seed, diff)
							}
							if last := store.last(id); r.Status.Terminal() || atRest(last.doc) {
								since := last.at
								if since.Before(began) {
									since = began
								}
								if late := time.Since(since); late > poll+4*slowest {
									t.Errorf("seed %d: told %v after the rest", seed, late)
								}
							}
							if r.Status.Terminal() {
								return
							}
						}
					})
				}
			}
			all.Wait()
			for _, stop := range stops {
				stop()
			}
			synctest.Wait()
			leftOver(t, engines...)
		})
		if t.Failed() {
			return
		}
	}
}

func TestAwaitOfARunThatIsDrivenHereReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
		e := restEngine(t, store, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }, Config{Concurrency: 50})
		ref := restGraph(t, &e.Client)
		stop := servingUntil(e)
		var all sync.WaitGroup
		for i := range 50 {
			id := fmt.Sprint("run-", i)
			synctest.Wait()
			if r, err := e.Start(t.Context(), ref, nil, StartOptions{ID: id}); err != nil || r.ClaimedAt.IsZero() {
				t.Fatalf("%+v, %v: want it driven here", r, err)
			}
			all.Go(func() {
				asked, err := e.Await(t.Context(), id)
				if err != nil || asked.Status != run.Waiting {
					t.Errorf("%+v, %v", asked, err)
					return
				}
				info, err := store.Store.InspectRun(t.Context(), backend.System(), id)
				if err != nil {
					t.Error(err)
				} else if diff := cmp.Diff(runOf(info), asked, cmpopts.EquateComparable(backend.Owner{})); diff != "" {
					t.Errorf("not what a read answers: %s", diff)
				}
			})
		}
		all.Wait()
		if n := store.reads.Load(); n != 0 {
			t.Errorf("%d reads for 50 runs that were driven here", n)
		}
		stop()
		synctest.Wait()
		leftOver(t, e)
	})
}

func TestAwaitOfAStrangerIsNotFoundAtOnceWhileTheRunIsDrivenHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
		e := restEngine(t, store, func(context.Context) error { time.Sleep(time.Second); return nil }, Config{})
		acme, other := e.For("acme"), e.For("other")
		ref := restGraph(t, acme)
		stop := servingUntil(e)
		r, err := acme.Start(t.Context(), ref, nil, StartOptions{})
		if err != nil || r.ClaimedAt.IsZero() {
			t.Fatalf("%+v, %v: want it driven here", r, err)
		}
		synctest.Wait()
		began := time.Now()
		for _, stranger := range []*Client{other, &e.Client} {
			if r, err := stranger.Await(t.Context(), r.ID); !errors.Is(err, backend.ErrNotFound) || r != nil || time.Since(began) != 0 {
				t.Errorf("a stranger's: %v, %v after %v", r, err, time.Since(began))
			}
		}
		// A stranger who waits while the run comes to rest is not handed it.
		me := e.watch.join(r.ID, backend.Tenant("other"))
		got, err := acme.Await(t.Context(), r.ID)
		if err != nil || got.Owner != backend.Tenant("acme") || got.Status != run.Waiting {
			t.Errorf("the owner's: %+v, %v", got, err)
		}
		if r := e.watch.handed(me); r != nil {
			t.Errorf("handed to a stranger: %+v", r)
		}
		e.watch.leave(me)
		stop()
		leftOver(t, e)
	})
}

func TestAwaitWhoseContextEndsTellsOfARunThatIsDrivenHereWithoutARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
		e := restEngine(t, store, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }, Config{})
		ref := restGraph(t, &e.Client)
		stop := servingUntil(e)
		started, err := e.Start(t.Context(), ref, nil, StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var ended *AwaitError
		r, err := e.Await(ctx, started.ID)
		if !errors.As(err, &ended) || ended.Status != run.Running || r == nil || r.Seq != 1 || r.Attempts != 1 || r.ClaimedAt.IsZero() || store.reads.Load() != 0 {
			t.Errorf("%+v, %v, %d reads", r, err, store.reads.Load())
		}
		stop()
		leftOver(t, e)
	})
}

func TestAwaitIsHandedTheCancelOfThisEngineAndFindsThatOfAnotherByPolling(t *testing.T) {
	for _, here := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
			work := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			e := restEngine(t, store, work, Config{})
			other := restEngine(t, store, work, Config{})
			ref := restGraph(t, &e.Client)
			stop := servingUntil(e)
			r, err := e.Start(t.Context(), ref, nil, StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var cancelled time.Time
			by, after := other, 2500*time.Millisecond
			if here {
				by, after = e, 100*time.Millisecond
			}
			time.AfterFunc(after, func() {
				cancelled = time.Now()
				if _, err := by.Cancel(t.Context(), r.ID, "enough"); err != nil {
					t.Error(err)
				}
			})
			got, err := e.Await(t.Context(), r.ID)
			if err != nil || got.Status != run.Cancelled {
				t.Fatalf("%+v, %v", got, err)
			}
			late, reads := time.Since(cancelled), store.reads.Load()
			if here && (late != 0 || reads != 0) || late > time.Second || reads > 3 {
				t.Errorf("cancelled here: %v; told %v later, after %d reads", here, late, reads)
			}
			stop()
			leftOver(t, e, other)
		})
	}
}

func TestAwaitGoesOnWhenItsEngineShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
		var moved atomic.Bool
		work := func(ctx context.Context) error {
			if !moved.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		e := restEngine(t, store, work, Config{})
		other := restEngine(t, store, work, Config{})
		ref := restGraph(t, &e.Client)
		stop := servingUntil(e)
		r, err := e.Start(t.Context(), ref, nil, StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *Run, 1)
		go func() {
			r, err := e.Await(t.Context(), r.ID)
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		synctest.Wait()
		stop()
		moved.Store(true)
		if _, err := other.Drain(t.Context(), DrainOptions{}); err != nil {
			t.Fatal(err)
		}
		drained := time.Now()
		if r := <-got; r == nil || r.Status != run.Waiting || time.Since(drained) != 0 {
			t.Errorf("%+v, %v after the other's commit", r, time.Since(drained))
		}
		leftOver(t, e, other)
	})
}

func TestAwaitOfARunThatRetentionDeletesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
		store.features = func(f *backend.Features) { f.Wakes = nil }
		work := func(context.Context) error { return nil }
		e := restEngine(t, store, work, Config{})
		other := restEngine(t, store, work, Config{})
		r, err := e.Start(t.Context(), restGraph(t, &e.Client), nil, StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := e.Await(t.Context(), r.ID)
			got <- err
		}()
		time.Sleep(10 * time.Second) // a look is a second away
		if _, err := other.Cancel(t.Context(), r.ID, "enough"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if p, err := store.Prune(t.Context(), backend.PrunePolicy{Before: time.Now(), Limit: 1}); err != nil || p.Runs != 1 {
			t.Fatal(p, err)
		}
		pruned := time.Now()
		if err := <-got; !errors.Is(err, backend.ErrNotFound) || time.Since(pruned) > time.Second {
			t.Errorf("%v, %v after", err, time.Since(pruned))
		}
		leftOver(t, e, other)
	})
}

func TestAwaitIsToldAtOnceThatTheRunWasPoisonedHere(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		set  func(t *testing.T, store *rests, id string)
		says string
	}{
		{
			"by an abandon",
			Config{MaxAbandons: 1, AbandonBackoff: time.Millisecond},
			func(*testing.T, *rests, string) {},
			"max_claim_abandons_exceeded",
		},
		{
			"by a claim",
			Config{MaxAttempts: 1},
			func(t *testing.T, store *rests, id string) {
				if batch, err := store.ClaimDue(t.Context(), claim.Policy{TTL: time.Minute, Limit: 1, MaxAttempts: 1}); err != nil || len(batch.Leases) != 1 {
					t.Fatal(batch, err)
				}
				time.Sleep(2 * time.Minute)
			},
			"max_claim_attempts_exceeded",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}}
				store.features = func(f *backend.Features) { f.Wakes = nil }
				tt.cfg.TTL, tt.cfg.PollInterval = time.Minute, time.Hour
				e := restEngine(t, store, func(context.Context) error { return nil }, tt.cfg)
				lacks, err := New(Config{Backend: store, Logger: e.log, Nodes: node.NewRegistry(), TTL: tt.cfg.TTL, PollInterval: time.Hour, MaxAbandons: tt.cfg.MaxAbandons, MaxAttempts: tt.cfg.MaxAttempts, AbandonBackoff: tt.cfg.AbandonBackoff})
				if err != nil {
					t.Fatal(err)
				}
				ref := restGraph(t, &e.Client)
				r, err := e.Start(t.Context(), ref, nil, StartOptions{})
				if err != nil {
					t.Fatal(err)
				}
				tt.set(t, store, r.ID)
				var poisoned *PoisonedError
				done := make(chan time.Time, 1)
				go func() {
					if _, err := lacks.Await(t.Context(), r.ID); !errors.As(err, &poisoned) || !strings.Contains(poisoned.Poison.Reason, tt.says) {
						t.Errorf("%v", err)
					}
					done <- time.Now()
				}()
				time.Sleep(time.Minute) // the pauses between looks are long by now
				var at time.Time
				for len(done) == 0 && at.IsZero() {
					if _, err := lacks.Drain(t.Context(), DrainOptions{}); err != nil {
						t.Fatal(err)
					}
					if info, err := store.Store.InspectRun(t.Context(), backend.System(), r.ID); err != nil {
						t.Fatal(err)
					} else if at = info.Poison.At; at.IsZero() {
						time.Sleep(time.Second)
					}
				}
				if late := (<-done).Sub(at); late > time.Millisecond {
					t.Errorf("told %v after", late)
				}
				leftOver(t, e, lacks)
			})
		})
	}
}
