package sqlite

import (
	"context"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// due is what one ClaimDue selects from: enough candidates that claim.Select takes the
// same as from all of them.
type due struct {
	candidates []claim.Candidate
	rows       []storedRun // index for index with candidates
	holds      map[backend.Owner]int
}

func (d *due) held(o backend.Owner) int { return d.holds[o] }

func findDue(c *conn, p claim.Policy) (*due, error) {
	f := &dueFinder{c: c, p: p, filter: newFilter(p.Filter), due: &due{}}
	var err error
	if p.OwnerCap > 0 {
		err = f.countHeld()
	}
	switch {
	case err != nil:
	case len(p.Filter.Runs) > 0:
		err = f.named()
	case p.Fairness == claim.Interleave || p.OwnerCap > 0:
		err = f.byOwner()
	default:
		err = f.oldest()
	}
	if err != nil {
		return nil, err
	}
	if p.Fairness == claim.Interleave {
		err = f.turns()
	}
	return f.due, err
}

// turns adds when the owners of the candidates were last served.
func (f *dueFinder) turns() error {
	known := make(map[backend.Owner]uint64)
	for i := range f.due.candidates {
		owner := f.due.candidates[i].Owner
		turn, ok := known[owner]
		if !ok {
			err := f.c.query(context.Background(), stTurnOf, func(r row) error { turn = uint64(r.int(0)); return nil }, tenantOf(owner))
			if err != nil {
				return err
			}
			known[owner] = turn
		}
		f.due.candidates[i].Turn = turn
	}
	return nil
}

type dueFinder struct {
	c      *conn
	p      claim.Policy
	filter *filter
	due    *due
}

// add adds the row if the filter admits it and it is due.
func (f *dueFinder) add(r storedRun) (added bool) {
	if r.status != run.Running || !f.filter.admits(r) {
		return false
	}
	class, at := r.state.Class(f.p.Now, f.p.TTL)
	if class == claim.NoClass {
		return false
	}
	f.due.candidates = append(f.due.candidates, claim.Candidate{ID: r.id, Owner: r.owner, Class: class, At: at})
	f.due.rows = append(f.due.rows, r)
	return true
}

// adding adds rows until most of them were added; most 0 is no bound.
func (f *dueFinder) adding(most int) func(row) error {
	n := 0
	return func(r row) error {
		if f.add(scanRun(r)) {
			n++
		}
		if most > 0 && n == most {
			return errStop
		}
		return nil
	}
}

// oldest reads as many of each class as can be taken, the oldest first.
func (f *dueFinder) oldest() error {
	ctx := context.Background()
	if err := f.c.query(ctx, stDueReady, f.adding(f.p.Limit), f.p.Now.UnixMicro()); err != nil {
		return err
	}
	return f.c.query(ctx, stDueExpired, f.adding(f.p.Limit), f.p.Now.Add(-f.p.TTL).UnixMicro())
}

// byOwner reads as many ready runs of each owner as can be taken, and every expired one:
// these are bounded by what was in flight, and no index leads to them by owner.
func (f *dueFinder) byOwner() error {
	ctx := context.Background()
	owner, found, err := f.nextOwner(stDueFirstOwner)
	for err == nil && found {
		most := f.p.Limit
		if f.p.OwnerCap > 0 {
			most = min(most, f.p.OwnerCap-f.due.held(ownerOf(owner)))
		}
		if most > 0 {
			if err := f.c.query(ctx, stDueReadyOfOwner, f.adding(most), f.p.Now.UnixMicro(), owner); err != nil {
				return err
			}
		}
		owner, found, err = f.nextOwner(stDueNextOwner, owner)
	}
	if err != nil {
		return err
	}
	return f.c.query(ctx, stDueExpired, f.adding(0), f.p.Now.Add(-f.p.TTL).UnixMicro())
}

func (f *dueFinder) nextOwner(st *statement, args ...any) (owner string, found bool, err error) {
	err = f.c.query(context.Background(), st, func(r row) error {
		owner, found = r.text(0), true
		return nil
	}, args...)
	return owner, found, err
}

// named looks the filter's runs up by id, each once.
func (f *dueFinder) named() error {
	seen := make(map[string]bool)
	for _, id := range f.p.Filter.Runs {
		if seen[id] {
			continue
		}
		seen[id] = true
		if err := f.c.query(context.Background(), stRunState, f.adding(0), id); err != nil {
			return err
		}
	}
	return nil
}

func (f *dueFinder) countHeld() error {
	f.due.holds = make(map[backend.Owner]int)
	return f.c.query(context.Background(), stClaimsHeld, func(r row) error {
		f.due.holds[ownerOf(r.text(0))]++
		return nil
	})
}

// filter is a claim.Filter's graphs, for quick lookup.
type filter struct{ graphs map[claim.GraphFilter]bool }

func newFilter(f claim.Filter) *filter {
	if len(f.Graphs) == 0 {
		return &filter{}
	}
	graphs := make(map[claim.GraphFilter]bool)
	for _, g := range f.Graphs {
		graphs[g] = true
	}
	return &filter{graphs: graphs}
}

func (f *filter) admits(r storedRun) bool {
	return f.graphs == nil || f.graphs[claim.GraphFilter{ID: r.graphID, Hash: r.graphHash}] || f.graphs[claim.GraphFilter{ID: r.graphID}]
}
