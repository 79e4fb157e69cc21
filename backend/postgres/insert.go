package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// InsertRun implements backend.Runs (clauses R1 to R3).
func (s *Store) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	i, err := s.newInsert(owner, in)
	if err != nil {
		return backend.Inserted{}, err
	}
	return s.insert(ctx, i)
}

func (s *Store) insert(ctx context.Context, i *insert) (backend.Inserted, error) {
	var answer backend.Inserted
	err := s.try(ctx, "insert run", always, func(db session) (err error) {
		answer, err = i.run(ctx, db, noGuard)
		return err
	})
	if err != nil {
		return backend.Inserted{}, err
	}
	s.changed(i.in.Schedule, i.in.Now)
	return answer, nil
}

// guard runs what may fail without spoiling the transaction it is in.
type guard func(fn func(db session) error) error

// noGuard is for statements that are transactions of their own.
var noGuard guard

// insert is one InsertRun at work.
type insert struct {
	s        *Store
	owner    backend.Owner
	in       backend.Initialization
	token    claim.Token
	document []byte
	events   events
}

func (s *Store) newInsert(owner backend.Owner, in backend.Initialization) (*insert, error) {
	in, err := backend.CheckInitialization(owner, in, s.Features(), s.opts.Limits)
	if err != nil {
		return nil, err
	}
	i := &insert{s: s, owner: owner, in: in}
	if in.Claim != nil {
		i.token = s.opts.NewToken()
	}
	i.document, i.events, err = s.encode(owner, in.Proposal, in.CheckpointID)
	return i, err
}

// wake is the wake that the schedule names; nil for the instant of the insert.
func (i *insert) wake() *time.Time { return instantOrNil(i.in.Schedule.At) }

func (i *insert) arguments() []any {
	d := i.in.Document
	args := append([]any{
		d.ID, tenantOf(i.owner), d.Graph.ID, d.Graph.Hash, d.StartedAt, d.UpdatedAt, d.Seq, string(i.in.CheckpointID), i.document,
		i.s.or(i.in.Now), i.wake(), textOrNil(i.token),
	}, i.events.arguments()...)
	if i.in.Key != "" {
		args = append(args, i.in.Key, i.in.Window.Microseconds())
	}
	return args
}

// again is how often an insert whose key or id was taken, and then free, is tried.
const again = 5

func (i *insert) run(ctx context.Context, db session, g guard) (backend.Inserted, error) {
	if g == nil {
		g = func(fn func(db session) error) error { return fn(db) }
	}
	st := stInsert
	if i.in.Key != "" {
		st = stInsertKeyed
	}
	taken := false
	for range again {
		var graph, inserted bool
		var now time.Time
		err := g(func(db session) error {
			return i.s.run(ctx, db, st, func(r pgx.Rows) error { return scan(r, &graph, &inserted, &now) }, i.arguments()...)
		})
		taken = code(err) == codeUniqueViolation || i.in.Key == ""
		switch {
		case code(err) == codeUniqueViolation:
		case err != nil:
			return backend.Inserted{}, err
		case inserted:
			return i.inserted(now), nil
		case !graph:
			return backend.Inserted{}, i.noGraph()
		}
		answer, known, err := i.classify(ctx, db, taken)
		if err != nil || known {
			return answer, err
		}
	}
	if taken { // by a run that the transaction does not see
		return backend.Inserted{}, backend.ErrConflict
	}
	return backend.Inserted{}, fmt.Errorf("%w: the start key changes hands all the time", backend.ErrBusy)
}

func (i *insert) noGraph() error {
	ref := i.in.Document.Graph
	return fmt.Errorf("%w: version %s of graph %s: publish it first", backend.ErrNotFound, ref.Hash, ref.ID)
}

func (i *insert) inserted(now time.Time) backend.Inserted {
	d := i.in.Document
	answer := backend.Inserted{Run: d.ID}
	if i.in.Claim != nil {
		answer.Lease = &claim.Lease{
			Run: d.ID, Owner: i.owner, GraphID: d.Graph.ID, GraphHash: d.Graph.Hash, Seq: d.Seq,
			Token: i.token, ClaimedAt: claim.Instant(now), Attempt: 1, TTL: i.in.Claim.TTL, Class: claim.Ready,
		}
	}
	return answer
}

// classify says why nothing was inserted: this very insert had been stored before, or its
// id is taken, or else its key is held. It is not known when what was in the way is gone.
func (i *insert) classify(ctx context.Context, db session, taken bool) (answer backend.Inserted, known bool, err error) {
	d := i.in.Document
	var owner, last, first, holder *string
	var seq *int64
	err = i.s.run(ctx, db, stInsertClassify, func(r pgx.Rows) error { return scan(r, &owner, &seq, &last, &first, &holder) },
		d.ID, tenantOf(i.owner), d.Graph.ID, textOrNil(i.in.Key))
	if err != nil {
		return backend.Inserted{}, false, err
	}
	if owner != nil && *owner == tenantOf(i.owner) {
		// The first checkpoint event has the insert's checkpoint id, however far the run has
		// come. Without such an event the row has it, while nothing has been committed since.
		stored := deref(first)
		if first == nil && *seq == d.Seq {
			stored = deref(last)
		}
		if stored == string(i.in.CheckpointID) {
			return backend.Inserted{Run: d.ID, Replayed: true}, true, nil
		}
	}
	switch {
	case taken && owner != nil:
		return backend.Inserted{}, true, backend.ErrConflict
	case !taken && holder != nil:
		return backend.Inserted{Run: *holder, Existing: true}, true, nil
	}
	return backend.Inserted{}, false, nil
}

// encode makes the bytes of a proposal.
func (s *Store) encode(owner backend.Owner, p run.Proposal, id checkpoint.ID) (document []byte, e events, err error) {
	if document, err = run.EncodeAs(p.Document, s.opts.WriteFormat); err != nil {
		return nil, e, err
	}
	if document, err = backend.SealDocument(s.opts.Sealer, owner, p.Document.ID, p.Document.Seq, document); err != nil {
		return nil, e, err
	}
	e.events = p.Events
	e.rows, err = backend.PackEvents(s.opts.Sealer, owner, id, p.Events, s.opts.WriteFormat)
	return document, e, err
}
