package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
)

// InsertRuns implements backend.Batches (feature X2): one statement for all without a
// start key. What it refuses goes through single inserts, which say why.
func (s *Store) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	results := make([]backend.InsertResult, len(ins))
	members := make([]*insert, len(ins))
	var single, group []int
	seen := make(map[string]bool, len(ins))
	for n := range ins {
		i, err := s.newInsert(owner, ins[n])
		if err != nil {
			results[n].Err = err
			continue
		}
		members[n] = i
		if id := i.in.Document.ID; i.in.Key != "" || seen[id] {
			single = append(single, n)
		} else {
			seen[id] = true
			group = append(group, n)
		}
	}
	if len(group) > 1 {
		done := s.insertGroup(ctx, owner, members, group, results)
		for _, n := range group {
			if !done[n] {
				single = append(single, n)
			}
		}
	} else {
		single = append(group, single...)
	}
	for _, n := range single {
		results[n].Inserted, results[n].Err = s.insert(ctx, members[n])
	}
	return results
}

// insertGroup inserts the members named by group, and answers which of them it stored.
func (s *Store) insertGroup(ctx context.Context, owner backend.Owner, members []*insert, group []int, results []backend.InsertResult) map[int]bool {
	var a insertArguments
	place := make(map[string]int, len(group))
	for _, n := range group {
		place[members[n].in.Document.ID] = n
		a.add(s, members[n])
	}
	done := make(map[int]bool, len(group))
	// Never again after an unknown outcome: the singles find out what was stored.
	err := s.try(ctx, "insert runs", unsent, func(db session) error {
		clear(done)
		return s.run(ctx, db, stInsertGroup, func(r pgx.Rows) error {
			var id string
			var graph, inserted bool
			var now time.Time
			if err := scan(r, &id, &graph, &inserted, &now); err != nil {
				return err
			}
			if n := place[id]; inserted {
				done[n], results[n].Inserted = true, members[n].inserted(now)
			}
			return nil
		}, a.all(owner)...)
	})
	if err != nil {
		for _, n := range group {
			results[n].Inserted = backend.Inserted{}
		}
		return nil
	}
	for n := range done {
		s.changed(members[n].in.Schedule, members[n].in.Now)
	}
	return done
}

// insertArguments are the parallel arrays of insert_group.
type insertArguments struct {
	ids, graphIDs, graphHashes []string
	started, updated           []time.Time
	seqs                       []int64
	checkpoints                []string
	documents                  [][]byte
	now, wakes                 []*time.Time
	tokens                     []*string
	events                     groupEvents
}

func (a *insertArguments) add(s *Store, i *insert) {
	d := i.in.Document
	a.ids, a.graphIDs, a.graphHashes = append(a.ids, d.ID), append(a.graphIDs, d.Graph.ID), append(a.graphHashes, d.Graph.Hash)
	a.started, a.updated = append(a.started, d.StartedAt), append(a.updated, d.UpdatedAt)
	a.seqs, a.checkpoints = append(a.seqs, d.Seq), append(a.checkpoints, string(i.in.CheckpointID))
	a.documents = append(a.documents, i.document)
	a.now, a.wakes, a.tokens = append(a.now, s.or(i.in.Now)), append(a.wakes, i.wake()), append(a.tokens, textOrNil(i.token))
	a.events.add(d.ID, i.events)
}

func (a *insertArguments) all(owner backend.Owner) []any {
	return append([]any{
		tenantOf(owner), a.ids, a.graphIDs, a.graphHashes, a.started, a.updated, a.seqs, a.checkpoints, a.documents, a.now, a.wakes, a.tokens,
	}, a.events.all()...)
}

// groupEvents are the events of several runs as parallel arrays.
type groupEvents struct {
	runs   []string
	events events
}

func (g *groupEvents) add(id string, e events) {
	for range e.seqs {
		g.runs = append(g.runs, id)
	}
	g.events.seqs = append(g.events.seqs, e.seqs...)
	g.events.checkpoints = append(g.events.checkpoints, e.checkpoints...)
	g.events.bodies = append(g.events.bodies, e.bodies...)
	g.events.digests = append(g.events.digests, e.digests...)
}

func (g *groupEvents) all() []any {
	return []any{orEmpty(g.runs), orEmpty(g.events.seqs), orEmpty(g.events.checkpoints), orEmpty(g.events.bodies), g.events.digests}
}

// orEmpty is an empty array rather than null.
func orEmpty[E any](s []E) []E {
	if s == nil {
		return []E{}
	}
	return s
}
