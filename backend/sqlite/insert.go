package sqlite

import (
	"context"
	"fmt"
	"time"

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
	return i.answered(s.writer.do(ctx, i.operation()))
}

// InsertRuns implements backend.Batches (feature X2).
func (s *Store) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	results := make([]backend.InsertResult, len(ins))
	members := make([]*insert, len(ins))
	ops := make([]*operation, len(ins))
	for n := range ins {
		if members[n], results[n].Err = s.newInsert(owner, ins[n]); results[n].Err == nil {
			ops[n] = members[n].operation()
		}
	}
	s.doAll(ctx, ops, func(n int, err error) { results[n].Inserted, results[n].Err = members[n].answered(err) })
	return results
}

// insert is one InsertRun at work.
type insert struct {
	s        *Store
	owner    backend.Owner
	in       backend.Initialization
	document []byte
	events   []backend.EventRow
	answer   backend.Inserted
}

func (s *Store) newInsert(owner backend.Owner, in backend.Initialization) (*insert, error) {
	in, err := backend.CheckInitialization(owner, in, s.Features(), s.opts.Limits)
	if err != nil {
		return nil, err
	}
	i := &insert{s: s, owner: owner, in: in}
	i.document, i.events, err = s.encode(owner, in.Proposal, in.CheckpointID)
	return i, err
}

// answered is the answer, and nothing of it beside an error.
func (i *insert) answered(err error) (backend.Inserted, error) {
	if err != nil {
		return backend.Inserted{}, err
	}
	return i.answer, nil
}

func (i *insert) operation() *operation {
	return &operation{name: "insert run", wakes: true, run: func(c *conn, careful bool) error {
		return i.run(context.Background(), c, careful)
	}}
}

func (i *insert) run(ctx context.Context, db session, careful bool) error {
	i.answer = backend.Inserted{}
	now := i.s.clock.or(i.in.Now)
	if err := i.graph(ctx, db); err != nil {
		return err
	}
	if i.in.Key != "" {
		if done, err := i.heldKey(ctx, db, now); err != nil || done {
			return err
		}
	}
	number, err := i.row(ctx, db, now)
	if err != nil || number == 0 {
		return err
	}
	point("insert.row")
	if _, err := db.exec(ctx, stDocumentInsert, number, i.document); err != nil {
		return err
	}
	h := i.s.history(i.owner, i.in.Document.ID, number)
	var last int64 // a run that is new has no events, unless it has those of one that is lost
	if careful {
		if last, err = h.last(ctx, db); err != nil {
			return err
		}
	}
	if err := h.append(ctx, db, last, i.in.Proposal.Events, i.events, i.in.CheckpointID); err != nil {
		return err
	}
	point("insert.events")
	if i.in.Key == "" {
		return nil
	}
	until := now.Add(i.in.Window)
	_, err = db.exec(ctx, stKeyTake, tenantOf(i.owner), i.in.Document.Graph.ID, i.in.Key, number, until.UnixMicro())
	return err
}

func (i *insert) graph(ctx context.Context, db session) error {
	found, ref := false, i.in.Document.Graph
	err := db.query(ctx, stGraphExists, func(row) error { found = true; return nil }, tenantOf(i.owner), ref.ID, ref.Hash)
	if err == nil && !found {
		err = fmt.Errorf("%w: version %s of graph %s: publish it first", backend.ErrNotFound, ref.Hash, ref.ID)
	}
	return err
}

// heldKey answers for a start key that is held; done is false when it is free. An
// insert that was stored already is answered as it was then, whoever holds its key by now.
func (i *insert) heldKey(ctx context.Context, db session, now time.Time) (done bool, err error) {
	if replayed, err := i.replayed(ctx, db); err != nil || replayed {
		return replayed, err
	}
	var first string
	err = db.query(ctx, stKeyFind, func(r row) error {
		if run.Status(r.text(2)).Terminal() && !now.Before(r.instant(3)) {
			return nil
		}
		first = r.text(1)
		return nil
	}, tenantOf(i.owner), i.in.Document.Graph.ID, i.in.Key)
	if err != nil || first == "" {
		return false, err
	}
	i.answer = backend.Inserted{Run: first, Existing: true}
	return true, nil
}

// row inserts the run's row, or finds that the id is taken: by this insert (0 and no
// error), or by another (ErrConflict).
func (i *insert) row(ctx context.Context, db session, now time.Time) (number int64, err error) {
	d := i.in.Document
	var state claim.State
	if i.in.Claim != nil {
		state = claim.State{Token: i.s.opts.NewToken(), ClaimedAt: now, Attempts: 1}
	} else {
		state = i.in.Schedule.Apply(claim.State{}, now)
	}
	number, err = db.insert(ctx, stRunInsert,
		d.ID, tenantOf(i.owner), d.Graph.ID, d.Graph.Hash, string(d.Status), d.StartedAt.UnixMicro(), d.UpdatedAt.UnixMicro(),
		micros(state.Wake), orNull(string(state.Token)), micros(state.ClaimedAt), int64(state.Attempts),
		d.Seq, string(i.in.Type), string(i.in.CheckpointID))
	if isDuplicate(err) {
		replayed, err := i.replayed(ctx, db)
		if err == nil && !replayed {
			err = backend.ErrConflict
		}
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	i.answer = backend.Inserted{Run: d.ID}
	if i.in.Claim != nil {
		i.answer.Lease = &claim.Lease{
			Run: d.ID, Owner: i.owner, GraphID: d.Graph.ID, GraphHash: d.Graph.Hash, Seq: d.Seq,
			Token: state.Token, ClaimedAt: now, Attempt: 1, TTL: i.in.Claim.TTL, Class: claim.Ready,
		}
	}
	return number, nil
}

// replayed looks whether the run stored under the id came from this very insert: its
// first checkpoint event has the insert's checkpoint id, however far the run has come.
// Without such an event the row has it, while nothing has been committed since.
func (i *insert) replayed(ctx context.Context, db session) (bool, error) {
	var number int64
	var first string
	err := db.query(ctx, stRunIdentify, func(r row) error {
		if r.text(1) == tenantOf(i.owner) {
			number = r.int(0)
			if r.int(3) == i.in.Document.Seq {
				first = r.text(2)
			}
		}
		return nil
	}, i.in.Document.ID)
	if err == nil && number != 0 {
		err = db.query(ctx, stRunFirstCheckpoint, func(r row) error { first = r.text(0); return nil }, number)
	}
	if first != string(i.in.CheckpointID) {
		return false, err
	}
	i.answer = backend.Inserted{Run: i.in.Document.ID, Replayed: true}
	return true, err
}

// encode makes the bytes of a proposal, in the caller's goroutine.
func (s *Store) encode(owner backend.Owner, p run.Proposal, id checkpoint.ID) (document []byte, events []backend.EventRow, err error) {
	if document, err = run.EncodeAs(p.Document, s.opts.WriteFormat); err != nil {
		return nil, nil, err
	}
	if document, err = backend.SealDocument(s.opts.Sealer, owner, p.Document.ID, p.Document.Seq, document); err != nil {
		return nil, nil, err
	}
	events, err = backend.PackEvents(s.opts.Sealer, owner, id, p.Events, s.opts.WriteFormat)
	return document, events, err
}

// doAll hands in the operations of one call together and tells each one's answer; nil
// operations were refused already.
func (s *Store) doAll(ctx context.Context, ops []*operation, each func(n int, err error)) {
	var submitted []*operation
	for _, op := range ops {
		if op != nil {
			submitted = append(submitted, op)
		}
	}
	s.writer.submit(submitted...)
	for n, op := range ops {
		if op != nil {
			each(n, s.writer.await(ctx, op))
		}
	}
}
