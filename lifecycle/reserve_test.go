package lifecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// countedClaims is a store of which every call takes a while, and the claims are counted.
type countedClaims struct {
	*rests
	claims atomic.Int64

	hold   chan struct{} // of each claim, when it is not nil
	asking sync.Mutex
	asked  []int
	prefer []claim.Class // beside asked
}

// take is what the claims since the last time asked for.
func (c *countedClaims) take() []int {
	c.asking.Lock()
	defer c.asking.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

func (c *countedClaims) Features() backend.Features {
	f := c.rests.Features()
	f.ClaimDocuments = c
	return f
}

func (c *countedClaims) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	c.claims.Add(1)
	c.asking.Lock()
	c.asked, c.prefer = append(c.asked, p.Limit), append(c.prefer, p.Prefer)
	hold := c.hold
	c.asking.Unlock()
	if hold != nil {
		<-hold
	}
	return effect(c.rests, func() (backend.ClaimedBatch, error) { return c.Store.ClaimDueDocuments(ctx, p) })
}

func newCountedClaims(seed uint64) *countedClaims {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	return &countedClaims{rests: &rests{Store: memory.New(memory.Options{}), commits: map[string][]kept{}, pause: func() {
		mu.Lock()
		d := time.Duration(300+rng.IntN(1000)) * time.Microsecond
		mu.Unlock()
		time.Sleep(d)
	}}}
}

// startAndAwait lets so many callers each start a run, await it, and start the next.
func startAndAwait(t *testing.T, e *Engine, callers, each int) {
	t.Helper()
	ref := restGraph(t, &e.Client)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				r, err := e.Start(t.Context(), ref, nil, StartOptions{})
				if err == nil {
					r, err = e.Await(t.Context(), r.ID)
				}
				if err != nil || r.Status != run.Waiting {
					t.Errorf("%+v, %v", r, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestStartsOfManyCallersWhileSlotsAreFreeNeedNeitherClaimsNorReads(t *testing.T) {
	for _, callers := range []int{1, 8, 32, 100} {
		synctest.Test(t, func(t *testing.T) {
			store := newCountedClaims(uint64(callers))
			e := restEngine(t, store, func(context.Context) error { return nil }, Config{Concurrency: 2 * callers})
			stop := servingUntil(e)
			time.Sleep(5 * time.Second)
			store.claims.Store(0)
			began := time.Now()
			startAndAwait(t, e, callers, 20)
			// Every commit is announced, and looked for less and less often: after the five polls that found nothing at
			// once, after 32 and after 64 milliseconds, and then after a tenth of a poll interval each.
			looks := int64(time.Since(began)/(100*time.Millisecond)) + 3
			if claims, reads := store.claims.Load(), store.reads.Load(); claims > looks || reads > int64(callers)/5 {
				t.Errorf("%d callers: %d claims (of %d looks) and %d reads for %d runs", callers, claims, looks, reads, 20*callers)
			}
			stop()
		})
	}
}

// What is due, or expired, is found while more is started here than there are slots, and no more runs
// are driven at once than there are.
func TestStartsThatTakeEverySlotStarveNothingThatIsDue(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 3 * time.Second
			slots := 1 + int(seed%4)
			store := newCountedClaims(seed)
			store.features = func(f *backend.Features) { f.Wakes = nil }
			var driven, most atomic.Int64
			work := func(context.Context) error {
				if n := driven.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer driven.Add(-1)
				time.Sleep(10 * time.Millisecond)
				return nil
			}
			e := restEngine(t, store, work, Config{Concurrency: slots, TTL: ttl})
			other := restEngine(t, store, work, Config{})
			ref := restGraph(t, &other.Client)
			add := func(kind string) (ids []string) {
				for i := range 3 {
					id := fmt.Sprint(kind, i)
					if _, err := other.Start(t.Context(), ref, nil, StartOptions{ID: id}); err != nil {
						t.Fatal(err)
					}
					ids = append(ids, id)
				}
				return ids
			}
			expired := add("expired")
			if batch, err := store.Store.ClaimDue(t.Context(), claim.Policy{TTL: ttl, Limit: 3, MaxAttempts: 3}); err != nil || len(batch.Leases) != 3 {
				t.Fatal(batch, err)
			}
			stop := servingUntil(e)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 4 * slots {
				all.Go(func() {
					for ctx.Err() == nil {
						r, err := e.Start(ctx, ref, nil, StartOptions{})
						if err == nil {
							_, _ = e.Await(ctx, r.ID)
						}
					}
				})
			}
			time.Sleep(ttl - time.Second)
			due := add("due")
			time.Sleep(time.Second + 3*time.Second)
			for _, id := range append(due, expired...) {
				if d := store.last(id).doc; d.Status != run.Waiting {
					t.Errorf("seed %d: %s is %s at %d after three seconds", seed, id, d.Status, d.Seq)
				}
			}
			if n := most.Load(); n > int64(slots) {
				t.Errorf("seed %d: %d were driven at once, there are %d slots", seed, n, slots)
			}
			cancel()
			all.Wait()
			stop()
		})
		if t.Failed() {
			return
		}
	}
}

// One claim at a time, half of the free slots each while little is due, then all.
func TestClaimLeavesHalfOfTheSlotsToStartsWhileLittleIsDueAndTakesAllWhenMoreIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedClaims(1)
		store.features = func(f *backend.Features) { f.Wakes = nil } // the poll finds all of them
		release := make(chan struct{})
		e := restEngine(t, store, func(context.Context) error { <-release; return nil }, Config{Concurrency: 10})
		other := restEngine(t, store.Store, func(context.Context) error { return nil }, Config{}) // which stores all at one instant
		stop := servingUntil(e)
		ref := restGraph(t, &other.Client)
		time.Sleep(5 * time.Second)
		store.take()
		runs := make([]NewRun, 20)
		for i := range runs {
			runs[i].ID = fmt.Sprint(i)
		}
		if _, err := other.StartMany(t.Context(), ref, runs); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if h := e.Health(); h.Held != 10 {
			t.Errorf("%d of 10 slots are used while 20 runs are due", h.Held)
		}
		if asked := store.take(); !slices.Equal(asked, []int{5, 5}) {
			t.Errorf("claims asked for %v", asked)
		}
		close(release)
		time.Sleep(5 * time.Second)
		stop()
		for i := range runs {
			if d := store.last(fmt.Sprint(i)).doc; d.Status != run.Waiting {
				t.Errorf("run %d is %s", i, d.Status)
			}
		}
	})
}

func TestClaimAsksForEveryFreeSlotWhereNothingIsStartedAsClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		short, drains, cannot bool
		cap, want             int
	}{
		"little was due":                   {short: true, want: 4},
		"more was due":                     {want: 7},
		"a drain":                          {short: true, drains: true, want: 7},
		"an owner's claims are counted":    {short: true, cap: 1, want: 7},
		"the backend cannot store claimed": {short: true, cannot: true, want: 7},
	} {
		e := restEngine(t, newCountedClaims(1), nil, Config{Concurrency: 10, OwnerCap: c.cap})
		e.features.StartClaimed = !c.cannot
		s := newSession(t.Context(), e, claim.Filter{})
		if s.short = c.short; !c.drains {
			s.dispatcher = newDispatcher(s)
		}
		if got := s.toAsk(7); got != c.want {
			t.Errorf("%s: it asks for %d of 7", name, got)
		}
	}
}

func TestStartReservesASlotThatNeitherARunNorAClaimNeeds(t *testing.T) {
	const slots = 6
	for name, c := range map[string]struct {
		active, asked  int
		again, more    bool // more: the last claim was not short
		paused, failed bool
		want           bool
	}{
		"all free":                         {want: true},
		"one free":                         {active: 5, want: true},
		"none free":                        {active: 6},
		"one beside those asked for":       {active: 3, asked: 2, want: true},
		"all are asked for":                {active: 3, asked: 3},
		"the last is for the claim wanted": {active: 5, again: true},
		"one beside the last":              {active: 4, again: true, want: true},
		"the claim wanted comes after one in flight": {active: 3, asked: 2, again: true},
		"one beside both": {active: 2, asked: 3, again: true},
		"two beside those asked for, one of them kept": {active: 2, asked: 2, again: true, want: true},
		"more was due":        {more: true},
		"paused":              {paused: true},
		"claiming has failed": {failed: true},
	} {
		e := restEngine(t, newCountedClaims(1), func(context.Context) error { return nil }, Config{Concurrency: slots})
		ref := restGraph(t, &e.Client)
		_, p, err := e.published(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		init, _, err := e.initialize(t.Context(), p, given{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(t.Context(), e, claim.Filter{})
		s.dispatcher = newDispatcher(s)
		s.active, s.asked, s.again, s.short, s.claiming = c.active, c.asked, c.again, !c.more, c.asked > 0
		if c.paused {
			e.Pause()
		}
		if c.failed {
			s.failure = backend.ErrClosed
		}
		e.serving.session.Store(s)
		slot := e.reserve(backend.Tenantless(), p, init.Proposal)
		if (slot != nil) != c.want {
			t.Errorf("%s: reserved %v", name, slot != nil)
		}
		if want := c.active; slot != nil {
			if s.active != want+1 {
				t.Errorf("%s: %d slots are used, there were %d", name, s.active, want)
			}
			if slot.giveUp(); s.active != want {
				t.Errorf("%s: %d slots are used after it was given up, there were %d", name, s.active, want)
			}
		}
	}
}

func TestClaimsForOneSlotTakeTurnsBetweenTheClassesAlsoWhenOthersAreLeftToStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedClaims(1)
		stop := servingUntil(restEngine(t, store, func(context.Context) error { return nil }, Config{Concurrency: 2}))
		time.Sleep(10 * time.Second)
		stop()
		if len(store.asked) < 5 {
			t.Fatalf("%d claims", len(store.asked))
		}
		for i := 2; i < len(store.asked); i++ {
			if store.asked[i] != 1 || store.prefer[i] == store.prefer[i-1] {
				t.Errorf("claim %d asks for %d and prefers %v, as the one before it did", i, store.asked[i], store.prefer[i])
			}
		}
	})
}

func TestStartsDuringAClaimTakeNoneOfTheSlotsThatItMayFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCountedClaims(1)
		release := make(chan struct{})
		e := restEngine(t, store, func(context.Context) error { <-release; return nil }, Config{Concurrency: 4})
		ref := restGraph(t, &e.Client)
		stop := servingUntil(e)
		time.Sleep(500 * time.Millisecond) // the first claim, for all slots, found nothing
		store.asking.Lock()
		store.hold = make(chan struct{})
		store.asking.Unlock()
		time.Sleep(2 * time.Second) // the next, for half of them, is under way
		for i, want := range []bool{true, true, false} {
			r, err := e.Start(t.Context(), ref, nil, StartOptions{})
			if err != nil || r.ClaimedAt.IsZero() == want {
				t.Errorf("start %d while a claim for two of four slots is under way: claimed at %v, %v", i, r.ClaimedAt, err)
			}
		}
		close(store.hold)
		close(release)
		time.Sleep(5 * time.Second)
		stop()
	})
}
