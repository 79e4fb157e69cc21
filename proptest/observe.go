package proptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// columns are the operational state of a run as a reader sees it.
type columns struct {
	Status    run.Status
	Wake      time.Time
	ClaimedAt time.Time
	Attempts  int
	Abandons  int
	Poison    claim.Poison
}

func columnsOf(i backend.Info) columns {
	return columns{
		Status: i.Document.Status, Wake: i.Wake, ClaimedAt: i.ClaimedAt,
		Attempts: i.Attempts, Abandons: i.Abandons, Poison: i.Poison,
	}
}

// picture is everything a store shows.
type picture struct {
	Runs   []backend.Summary
	Infos  map[string]backend.Info
	Events map[string][]run.Event
	Graphs map[string][]backend.GraphVersion
}

// comparison says when two observations are equal: instants by what they mean, slices and
// maps without a difference between nil and empty, owners by their value.
var comparison = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b backend.Owner) bool { return a == b }),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) && a.Location() == b.Location() }),
}

// pages says what of a picture is read in pages of a size: the list of the runs, and the events of one of
// them, the turn's, since paging through all of them each time takes longer than what it tells.
type pages struct{ size, turn int }

// whole is for pictures without small pages.
var whole = pages{size: backend.MaxLimit}

// look takes a picture of the whole store.
func look(ctx context.Context, store backend.Store, graphs []savedGraph, in pages) (picture, error) {
	p := picture{Infos: map[string]backend.Info{}, Events: map[string][]run.Event{}, Graphs: map[string][]backend.GraphVersion{}}
	var err error
	if p.Runs, err = allRuns(ctx, store, backend.System(), backend.Query{Limit: in.size}); err != nil {
		return p, err
	}
	for i, s := range p.Runs {
		limit := backend.MaxLimit
		if i == in.turn%len(p.Runs) {
			limit = in.size
		}
		if p.Infos[s.Run], err = store.InspectRun(ctx, backend.System(), s.Run); err != nil {
			return p, fmt.Errorf("InspectRun of %s: %w", s.Run, err)
		}
		if p.Events[s.Run], err = allEvents(ctx, store, backend.System(), s.Run, limit); err != nil {
			return p, err
		}
	}
	for _, g := range graphs {
		key := g.owner.String() + "/" + g.ref.ID
		if _, seen := p.Graphs[key]; seen {
			continue
		}
		page, err := store.GraphVersions(ctx, g.owner, g.ref.ID, backend.GraphQuery{Limit: backend.MaxLimit})
		if err != nil {
			return p, fmt.Errorf("GraphVersions of %s: %w", g.ref.ID, err)
		}
		p.Graphs[key] = page.Versions
	}
	return p, nil
}

// allRuns lists every run of a scope, page by page.
func allRuns(ctx context.Context, store backend.Store, scope backend.Scope, q backend.Query) ([]backend.Summary, error) {
	var runs []backend.Summary
	for range 1000 {
		page, err := store.ListRuns(ctx, scope, q)
		if err != nil {
			return nil, fmt.Errorf("ListRuns: %w", err)
		}
		runs = append(runs, page.Runs...)
		if !page.HasMore {
			return runs, nil
		}
		q.Before = page.Next
	}
	return nil, fmt.Errorf("ListRuns: a thousand pages and still more")
}

// allEvents lists every event of a run, page by page.
func allEvents(ctx context.Context, store backend.Store, scope backend.Scope, id string, size int) ([]run.Event, error) {
	var events []run.Event
	q := backend.EventQuery{Limit: size}
	for range 1000 {
		page, err := store.ListEvents(ctx, scope, id, q)
		if err != nil {
			return nil, fmt.Errorf("ListEvents of %s: %w", id, err)
		}
		events = append(events, page.Events...)
		if !page.HasMore {
			if n := len(events); n > 0 && (page.Oldest != events[0].Seq || page.Latest != events[n-1].Seq) {
				return nil, fmt.Errorf("ListEvents of %s: oldest %d and latest %d, but the events are %d to %d", id, page.Oldest, page.Latest, events[0].Seq, events[n-1].Seq)
			}
			return events, nil
		}
		q.After = page.Next
	}
	return nil, fmt.Errorf("ListEvents of %s: a thousand pages and still more", id)
}

// sortBatch puts the outcomes of a batch in the order of their runs.
func sortBatch(b *claim.Batch) {
	slices.SortFunc(b.Leases, func(x, y claim.Lease) int { return strings.Compare(x.Run, y.Run) })
	slices.SortFunc(b.Poisoned, func(x, y claim.PoisonedRun) int { return strings.Compare(x.Run, y.Run) })
}

// same reports a difference between what is and what must be.
func (r *rig) same(what string, got, want any) {
	r.Helper()
	if diff := cmp.Diff(want, got, comparison); diff != "" {
		r.Errorf("%s is not what it must be (- must, + is):\n%s", what, diff)
	}
}

// look takes a picture and ends the case if that fails.
func (r *rig) look() picture {
	r.Helper()
	p, err := look(r.ctx, r.store, r.saved, whole)
	r.ok("reading the whole store", err)
	return p
}

// untouched requires that do leaves everything the store shows as it was.
func (r *rig) untouched(what string, do func()) {
	r.Helper()
	before := r.look()
	do()
	if diff := cmp.Diff(before, r.look(), comparison); diff != "" {
		r.Errorf("%s changed the store (- before, + after):\n%s", what, diff)
	}
}

// inspect reads a run and ends the case if that fails.
func (r *rig) inspect(id string) backend.Info {
	r.Helper()
	info, err := r.store.InspectRun(r.ctx, backend.System(), id)
	r.ok("InspectRun of "+id, err)
	return info
}

// expect requires the operational state of a run.
func (r *rig) expect(id string, want columns) {
	r.Helper()
	r.same("the state of "+id, columnsOf(r.inspect(id)), want)
}

// document requires the document of a run.
func (r *rig) document(want *run.Document) {
	r.Helper()
	got, err := r.store.FetchRun(r.ctx, backend.System(), want.ID)
	r.ok("FetchRun of "+want.ID, err)
	r.same("the document of "+want.ID, got, want)
}

// events requires the events of a run.
func (r *rig) events(id string, want []run.Event) {
	r.Helper()
	got, err := allEvents(r.ctx, r.store, backend.System(), id, backend.MaxLimit)
	r.ok("reading events", err)
	r.same("the events of "+id, got, want)
}

// asCorrupt is the typed error of a row that cannot be read.
func asCorrupt(err error) (*backend.CorruptError, bool) {
	var c *backend.CorruptError
	ok := errors.As(err, &c)
	return c, ok
}

// absent requires that a run is nowhere to be seen.
func (r *rig) absent(id string) {
	r.Helper()
	_, err := r.store.InspectRun(r.ctx, backend.System(), id)
	r.refused("InspectRun of "+id, err, backend.ErrNotFound)
	_, err = r.store.ListEvents(r.ctx, backend.System(), id, backend.EventQuery{Limit: 1})
	r.refused("ListEvents of "+id, err, backend.ErrNotFound)
}
