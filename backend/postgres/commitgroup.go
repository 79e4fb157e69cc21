package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
)

// Commits implements backend.Batches (clause T6): one statement for all that match their
// fence and are not locked elsewhere. The others go through single commits, which say why.
func (s *Store) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	results := make([]backend.CommitResult, len(cs))
	members := make([]*commit, len(cs))
	var single, group []int
	bytes, open := 0, false
	seen := make(map[string]bool, len(cs))
	for n := range cs {
		k, err := s.newCommit(ctx, scope, cs[n])
		if err != nil {
			results[n].Err = err
			continue
		}
		members[n] = k
		if bytes += len(k.document); seen[k.c.Document.ID] || !k.events.fit() || bytes > groupBytes {
			single = append(single, n)
		} else {
			group = append(group, n)
		}
		seen[k.c.Document.ID] = true
	}
	if len(group) > 1 {
		var done map[string]bool
		done, open = s.commitGroup(ctx, scope, members, group)
		for _, n := range group {
			if !done[members[n].c.Document.ID] {
				single = append(single, n)
			}
		}
	} else {
		single = append(group, single...)
	}
	singly(single, open, func(n int) (err error) {
		results[n].Committed, err = s.commit(ctx, members[n])
		return err
	}, func(n int, err error) { results[n].Err = err })
	return results
}

// commitGroup commits the members named by group, and answers the runs of those that
// are known to be committed, or that nothing is known of them.
func (s *Store) commitGroup(ctx context.Context, scope backend.Scope, members []*commit, group []int) (done map[string]bool, open bool) {
	var a commitArguments
	for _, n := range group {
		a.add(s, members[n])
	}
	done = make(map[string]bool, len(group))
	// Never again after an unknown outcome: the singles find out what was stored. A unique
	// violation of one member's events is theirs to tell, too.
	err := s.try(ctx, "commit a group", unsent, func(db session) error {
		clear(done)
		return s.run(ctx, db, stCommitGroup, func(r pgx.Rows) error {
			var id string
			err := scan(r, &id)
			done[id] = true
			return err
		}, a.all(scope)...)
	})
	if err != nil {
		return nil, backend.Classify(err) == backend.Unknown
	}
	for _, n := range group {
		if k := members[n]; done[k.c.Document.ID] {
			s.changed(k.c.Schedule, k.c.Now)
		}
	}
	return done, false
}

// commitArguments are the parallel arrays of commit_group.
type commitArguments struct {
	ids                           []string
	expected                      []int64
	tokens, graphIDs, graphHashes []string
	started                       []time.Time
	statuses                      []string
	updated                       []time.Time
	finished, wakes               []*time.Time
	due, retain                   []bool
	types, checkpoints            []string
	documents                     [][]byte
	now                           []*time.Time
	events                        groupEvents
}

func (a *commitArguments) add(s *Store, k *commit) {
	d := k.c.Document
	wake, due, retain := leaves(k.c.Schedule)
	a.ids, a.expected, a.tokens = append(a.ids, d.ID), append(a.expected, k.c.Expected), append(a.tokens, string(k.c.Token))
	a.graphIDs, a.graphHashes, a.started = append(a.graphIDs, d.Graph.ID), append(a.graphHashes, d.Graph.Hash), append(a.started, d.StartedAt)
	a.statuses, a.updated, a.finished = append(a.statuses, string(d.Status)), append(a.updated, d.UpdatedAt), append(a.finished, instantOrNil(d.FinishedAt))
	a.wakes, a.due, a.retain = append(a.wakes, wake), append(a.due, due), append(a.retain, retain)
	a.types, a.checkpoints = append(a.types, string(k.c.Type)), append(a.checkpoints, string(k.c.CheckpointID))
	a.documents, a.now = append(a.documents, k.document), append(a.now, s.or(k.c.Now))
	a.events.add(&k.events)
}

func (a *commitArguments) all(scope backend.Scope) []any {
	return []any{
		ownerArg(scope), a.ids, a.expected, a.tokens, a.graphIDs, a.graphHashes, a.started, a.statuses, a.updated, a.finished,
		a.wakes, a.due, a.retain, a.types, a.checkpoints, a.documents, a.now,
		a.events.seqs, a.events.firsts, a.events.checkpoints, a.events.bodies, a.events.digests,
	}
}
