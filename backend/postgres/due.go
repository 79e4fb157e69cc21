package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

const (
	// mostOwners bounds the owners that one claim looks at; the next one goes on behind them.
	mostOwners = 1000
	// mostLocked bounds, roughly, how many rows one claim locks to choose from.
	mostLocked = 1000
)

// selected claims under a filter, a cap or interleaving: candidates are locked, and
// claim.Select chooses among those that nobody else had locked. What is locked and not
// chosen is free again with the end of the transaction.
func (a *acquisition) selected(ctx context.Context, _ session) error {
	return a.s.within(ctx, func(tx pgx.Tx) error {
		f := &dueFinder{s: a.s, tx: tx, p: a.policy}
		if err := f.find(ctx); err != nil {
			return err
		}
		a.batch.Now = f.p.Now
		taken := claim.Select(f.candidates, f.p, f.room)
		if len(taken) == 0 {
			return nil
		}
		ids, classes, tokens := make([]string, len(taken)), make([]int64, len(taken)), make([]string, len(taken))
		for i, n := range taken {
			ids[i], classes[i] = f.candidates[n].ID, int64(f.candidates[n].Class)
			tokens[i] = string(a.s.opts.NewToken())
		}
		return a.s.run(ctx, tx, stDueTake, a.add, f.p.Now, int32(min(a.policy.MaxAttempts, maxCount)), ids, classes, tokens, a.documents)
	})
}

// dueFinder locks enough candidates that claim.Select takes the same as from all of them.
type dueFinder struct {
	s          *Store
	tx         pgx.Tx
	p          claim.Policy
	candidates []claim.Candidate
	held       map[backend.Owner]int
}

func (f *dueFinder) room(o backend.Owner) int { return f.held[o] }

func (f *dueFinder) find(ctx context.Context) error {
	if f.p.OwnerCap > 0 {
		if err := f.countHeld(ctx); err != nil {
			return err
		}
	}
	var now time.Time
	err := f.s.run(ctx, f.tx, stDueClock, func(r pgx.Rows) error { return scan(r, &now) }, f.s.or(f.p.Now), f.s.floor.lowest())
	if err != nil {
		return err
	}
	f.p.Now = claim.Instant(now)
	graphIDs, graphHashes := f.graphs()
	if len(f.p.Filter.Runs) > 0 {
		return f.add(ctx, stDueNamed, f.p.Now, f.p.TTL.Microseconds(), f.p.Filter.Runs, graphIDs, graphHashes)
	}
	byOwner := f.p.Fairness == claim.Interleave || f.p.OwnerCap > 0
	if byOwner {
		err = f.ofOwners(ctx, graphIDs, graphHashes)
	} else {
		err = f.add(ctx, stDueReady, f.p.Now, int64(f.p.Limit), graphIDs, graphHashes)
	}
	if err != nil {
		return err
	}
	return f.add(ctx, stDueExpired, f.p.Now, f.p.TTL.Microseconds(), int64(max(f.p.Limit, min(4*f.p.Limit, mostLocked))),
		byOwner, graphIDs, graphHashes)
}

// countHeld counts what owners hold, one claim at a time: two that count at once would
// exceed a cap together.
func (f *dueFinder) countHeld(ctx context.Context) error {
	if err := f.s.run(ctx, f.tx, stDueCap, nil, f.s.lockKey("cap")); err != nil {
		return err
	}
	f.held = make(map[backend.Owner]int)
	return f.s.run(ctx, f.tx, stDueHeld, func(r pgx.Rows) error {
		var owner string
		var n int64
		err := scan(r, &owner, &n)
		f.held[ownerOf(owner)] = int(n)
		return err
	})
}

// dueOwner is an owner with ready runs, the oldest of them due since at.
type dueOwner struct {
	owner string
	turn  uint64
	at    time.Time
}

// ofOwners locks the oldest ready runs of the owners whose turn it is.
func (f *dueFinder) ofOwners(ctx context.Context, graphIDs, graphHashes []string) error {
	owners, err := f.owners(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(owners, func(a, b dueOwner) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.at.Compare(b.at), cmp.Compare(a.owner, b.owner))
	})
	// Of very many owners the first ones fill the batch, with one run each.
	most := f.p.Limit
	if interleaved := f.p.Fairness == claim.Interleave; interleaved && len(owners)*f.p.Limit > mostLocked && f.p.Filter.IsZero() {
		owners = owners[:min(len(owners), 2*f.p.Limit)]
		most = max(1, 2*f.p.Limit/len(owners))
	}
	var names []string
	var quotas []int64
	for _, o := range owners {
		quota := most
		if f.p.OwnerCap > 0 {
			quota = min(quota, f.p.OwnerCap-f.held[ownerOf(o.owner)])
		}
		if quota > 0 {
			names, quotas = append(names, o.owner), append(quotas, int64(quota))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return f.add(ctx, stDueOfOwners, f.p.Now, names, quotas, graphIDs, graphHashes)
}

// owners lists owners with ready runs: all of them, or as many as one claim looks at,
// from where the last one stopped.
func (f *dueFinder) owners(ctx context.Context) ([]dueOwner, error) {
	var owners []dueOwner
	from := f.s.turns.from()
	list := func(from string, most int) error {
		return f.s.run(ctx, f.tx, stDueOwners, func(r pgx.Rows) error {
			var o dueOwner
			err := scan(r, &o.owner, &o.at)
			owners = append(owners, o)
			return err
		}, f.p.Now, from, int64(most))
	}
	if err := list(from, mostOwners); err != nil {
		return nil, err
	}
	next := ""
	if len(owners) == mostOwners {
		next = owners[len(owners)-1].owner
	} else if from != "" {
		if err := list("", mostOwners-len(owners)); err != nil {
			return nil, err
		}
	}
	f.s.turns.goOn(next)
	slices.SortFunc(owners, func(a, b dueOwner) int { return cmp.Compare(a.owner, b.owner) })
	owners = slices.CompactFunc(owners, func(a, b dueOwner) bool { return a.owner == b.owner })
	for i := range owners {
		owners[i].turn = f.s.turns.of(ownerOf(owners[i].owner))
	}
	return owners, nil
}

func (f *dueFinder) add(ctx context.Context, st statement, args ...any) error {
	return f.s.run(ctx, f.tx, st, func(r pgx.Rows) error {
		var id, owner string
		var class, attempts int32
		var at time.Time
		if err := scan(r, &id, &owner, &class, &at, &attempts); err != nil {
			return err
		}
		c := claim.Candidate{ID: id, Owner: ownerOf(owner), Class: claim.Class(class), At: claim.Instant(at)}
		if f.p.Fairness == claim.Interleave {
			c.Turn = f.s.turns.of(c.Owner)
		}
		f.candidates = append(f.candidates, c)
		return nil
	}, args...)
}

// graphs are the filter's graphs as arguments; null for any.
func (f *dueFinder) graphs() (ids, hashes []string) {
	for _, g := range f.p.Filter.Graphs {
		ids, hashes = append(ids, g.ID), append(hashes, g.Hash)
	}
	return ids, hashes
}

// turns remembers when owners were last served, for the rotation of clause K5.
type turns struct {
	mu     sync.Mutex
	served uint64
	last   map[backend.Owner]uint64
	next   string // the owner from which the next list of owners goes on
}

// mostTurns bounds the memory; forgetting begins a new round.
const mostTurns = 100_000

func (t *turns) serve(o backend.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) >= mostTurns {
		t.last = make(map[backend.Owner]uint64)
	}
	t.served++
	t.last[o] = t.served
}

func (t *turns) of(o backend.Owner) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[o]
}

func (t *turns) from() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}

func (t *turns) goOn(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = from
}
