package postgres

import (
	"context"
	"math"
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
	bytes, open := 0, false
	seen := make(map[string]bool, len(ins))
	for n := range ins {
		i, err := s.newInsert(owner, ins[n])
		if err != nil {
			results[n].Err = err
			continue
		}
		members[n] = i
		if bytes += len(i.document); i.in.Key != "" || seen[i.in.Document.ID] || !i.events.fit() || bytes > groupBytes {
			single = append(single, n)
		} else {
			group = append(group, n)
		}
		seen[i.in.Document.ID] = true
	}
	if len(group) > 1 {
		var done map[int]bool
		done, open = s.insertGroup(ctx, owner, members, group, results)
		for _, n := range group {
			if !done[n] {
				single = append(single, n)
			}
		}
	} else {
		single = append(group, single...)
	}
	singly(single, open, func(n int) (err error) {
		results[n].Inserted, err = s.insert(ctx, members[n])
		return err
	}, func(n int, err error) { results[n].Err = err })
	return results
}

// insertGroup inserts the members named by group, and answers which of them it stored, or that this is not known.
func (s *Store) insertGroup(ctx context.Context, owner backend.Owner, members []*insert, group []int, results []backend.InsertResult) (done map[int]bool, open bool) {
	var a insertArguments
	place := make(map[string]int, len(group))
	for _, n := range group {
		place[members[n].in.Document.ID] = n
		a.add(s, members[n])
	}
	done = make(map[int]bool, len(group))
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
		return nil, backend.Classify(err) == backend.Unknown
	}
	for n := range done {
		s.changed(members[n].in.Schedule, members[n].in.Now)
	}
	return done, false
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
	a.events.add(&i.events)
}

func (a *insertArguments) all(owner backend.Owner) []any {
	return []any{
		tenantOf(owner), a.ids, a.graphIDs, a.graphHashes, a.started, a.updated, a.seqs, a.checkpoints, a.documents, a.now, a.wakes, a.tokens,
		a.events.seqs, a.events.checkpoints, a.events.bodies, a.events.digests,
	}
}

// fit reports whether the events go with a group: in one row.
func (e *events) fit() bool { return len(e.rows) <= 1 }

// groupEvents are the rows of events of several runs as parallel arrays, one each.
type groupEvents struct {
	seqs, firsts    []int64
	checkpoints     []*string
	bodies, digests [][]byte
}

func (g *groupEvents) add(e *events) {
	row := backend.EventRow{First: math.MaxInt64} // none, and none in its way
	if len(e.rows) > 0 {
		row = e.rows[0]
	}
	g.seqs, g.firsts, g.checkpoints = append(g.seqs, row.Seq), append(g.firsts, row.First), append(g.checkpoints, textOrNil(row.CheckpointID))
	g.bodies, g.digests = append(g.bodies, row.Body), append(g.digests, row.Digest)
}
