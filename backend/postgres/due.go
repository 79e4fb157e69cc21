package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

const (
	// mostOwners bounds the owners that one claim looks at.
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
		err := a.s.run(ctx, tx, stDueTake, a.add, f.p.Now, int32(min(a.policy.MaxAttempts, maxCount)), ids, classes, tokens, a.documents)
		if err != nil || f.p.Fairness != claim.Interleave {
			return err
		}
		return f.serve(ctx, taken)
	})
}

// dueFinder locks enough candidates that claim.Select takes the same as from all of them.
type dueFinder struct {
	s          *Store
	tx         pgx.Tx
	p          claim.Policy
	candidates []claim.Candidate
	held       map[backend.Owner]int
	turns      map[backend.Owner]uint64 // as they were first read
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
	interleaved := f.p.Fairness == claim.Interleave
	if len(f.p.Filter.Runs) > 0 {
		return f.add(ctx, stDueNamed, f.p.Now, f.p.TTL.Microseconds(), f.p.Filter.Runs, graphIDs, graphHashes, interleaved)
	}
	byOwner := interleaved || f.p.OwnerCap > 0
	if byOwner {
		err = f.ofOwners(ctx, graphIDs, graphHashes)
	} else {
		err = f.add(ctx, stDueReady, f.p.Now, int64(f.p.Limit), graphIDs, graphHashes)
	}
	if err != nil {
		return err
	}
	return f.add(ctx, stDueExpired, f.p.Now, f.p.TTL.Microseconds(), int64(max(f.p.Limit, min(4*f.p.Limit, mostLocked))),
		byOwner, graphIDs, graphHashes, interleaved)
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
	at    time.Time
	turn  int64
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
	if f.p.Fairness == claim.Interleave && len(owners)*f.p.Limit > mostLocked && f.p.Filter.IsZero() {
		owners = owners[:min(len(owners), 2*f.p.Limit)]
		most = max(1, 2*f.p.Limit/len(owners))
	}
	var names []string
	var quotas, turns []int64
	for _, o := range owners {
		quota := most
		if f.p.OwnerCap > 0 {
			quota = min(quota, f.p.OwnerCap-f.held[ownerOf(o.owner)])
		}
		if quota > 0 {
			names, quotas, turns = append(names, o.owner), append(quotas, int64(quota)), append(turns, o.turn)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return f.add(ctx, stDueOfOwners, f.p.Now, names, quotas, graphIDs, graphHashes, turns)
}

// owners lists owners with ready runs: all of them, or as many as one claim looks at. These begin
// with the one that was served last, so that the claims of all processes go round.
func (f *dueFinder) owners(ctx context.Context) ([]dueOwner, error) {
	first := ""
	owners, err := f.listOwners(ctx, &first, mostOwners)
	if err != nil || len(owners) < mostOwners {
		return owners, err
	}
	from, err := f.listOwners(ctx, nil, mostOwners)
	if err != nil {
		return nil, err
	}
	// Behind the last owner comes the first.
	owners = append(from, owners[:mostOwners-len(from)]...)
	slices.SortFunc(owners, func(a, b dueOwner) int { return cmp.Compare(a.owner, b.owner) })
	return slices.CompactFunc(owners, func(a, b dueOwner) bool { return a.owner == b.owner }), nil
}

func (f *dueFinder) listOwners(ctx context.Context, from *string, most int) (owners []dueOwner, err error) {
	err = f.s.run(ctx, f.tx, stDueOwners, func(r pgx.Rows) error {
		var o dueOwner
		err := scan(r, &o.owner, &o.at, &o.turn)
		owners = append(owners, o)
		return err
	}, f.p.Now, from, int64(most))
	return owners, err
}

// turn is when an owner was last served. Others serve owners meanwhile; what was read first counts
// for all candidates of an owner.
func (f *dueFinder) turn(o backend.Owner, read uint64) uint64 {
	if f.turns == nil {
		f.turns = make(map[backend.Owner]uint64)
	}
	turn, ok := f.turns[o]
	if !ok {
		turn, f.turns[o] = read, read
	}
	return turn
}

// serve keeps whose turn it was, for the rotation of clause K5: in the database, so that the claims
// of every process on it are one rotation.
func (f *dueFinder) serve(ctx context.Context, taken []int) error {
	last := make(map[string]int64)
	for place, n := range taken {
		last[tenantOf(f.candidates[n].Owner)] = int64(place) + 1
	}
	var places []int64
	owners := slices.Sorted(maps.Keys(last))
	for _, o := range owners {
		places = append(places, last[o])
	}
	return f.s.run(ctx, f.tx, stTurnTake, nil, owners, places, f.s.lockKey("turns"))
}

func (f *dueFinder) add(ctx context.Context, st statement, args ...any) error {
	return f.s.run(ctx, f.tx, st, func(r pgx.Rows) error {
		var id, owner string
		var class int32
		var at time.Time
		var turn int64
		if err := scan(r, &id, &owner, &class, &at, &turn); err != nil {
			return err
		}
		c := claim.Candidate{ID: id, Owner: ownerOf(owner), Class: claim.Class(class), At: claim.Instant(at)}
		if f.p.Fairness == claim.Interleave {
			c.Turn = f.turn(c.Owner, uint64(turn))
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
