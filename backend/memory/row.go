package memory

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// row is one stored run.
type row struct {
	id      string
	owner   *owner
	key     *startKey // the start key it was inserted under, if any
	started int64     // started-at in microseconds, for the list

	// lock is held by whoever replaces the snapshot.
	lock lock
	// now is what is stored; nil once the run was pruned.
	now atomic.Pointer[snapshot]

	// due is the run's place in the due index, guarded by the index.
	due place
	// finished is finished-at in microseconds, guarded by the list; 0 before the end.
	finished int64
}

// snapshot is a run as of one moment. It is never modified.
type snapshot struct {
	*committed
	claim claim.State
}

// committed is what only transitions change: claim operations share it.
type committed struct {
	document *run.Document
	kind     checkpoint.Type
	graph    *published
	history  history

	// damage says why the stored document, and which events, cannot be read. The
	// document stays for the columns that a database keeps beside it. Set by tests only.
	damage damage
}

// damage is what a test broke.
type damage struct {
	document error
	events   map[int64]error
}

// current is the checkpoint id in the run's row.
func (c *committed) current() checkpoint.ID { return c.history[len(c.history)-1].commit }

// read is the document, or why it cannot be read.
func (c *committed) read() (*run.Document, error) {
	if c.damage.document != nil {
		return nil, &backend.CorruptError{Run: c.document.ID, What: "document", Err: c.damage.document}
	}
	return c.document, nil
}

// next is what a transition makes of c.
func (c *committed) next(p run.Proposal, id checkpoint.ID, g *published) (*committed, error) {
	grown, err := c.history.grown(id, p.Events)
	if err != nil {
		return nil, err
	}
	return &committed{
		document: p.Document, kind: p.Type, graph: g, history: grown,
		damage: damage{events: c.damage.events},
	}, nil
}

// readEvent is the event, or why it cannot be read.
func (c *committed) readEvent(e run.Event) (run.Event, error) {
	if err := c.damage.events[e.Seq]; err != nil {
		return run.Event{}, &backend.CorruptError{Run: e.Run, What: fmt.Sprintf("event %d", e.Seq), Err: err}
	}
	return e, nil
}

// info is the run as InspectRun shows it.
func (s *snapshot) info(o *owner) backend.Info {
	return backend.Info{
		Document:     s.document,
		Owner:        o.id,
		Wake:         s.claim.Wake,
		ClaimedAt:    s.claim.ClaimedAt,
		Attempts:     s.claim.Attempts,
		Abandons:     s.claim.Abandons,
		Poison:       s.claim.Poison,
		Type:         s.kind,
		CheckpointID: s.current(),
	}
}

// summary is the run as ListRuns shows it.
func (s *snapshot) summary(o *owner) backend.Summary {
	d := s.document
	return backend.Summary{
		Run:        d.ID,
		Owner:      o.id,
		Graph:      d.Graph,
		Status:     d.Status,
		Seq:        d.Seq,
		StartedAt:  d.StartedAt,
		UpdatedAt:  d.UpdatedAt,
		FinishedAt: d.FinishedAt,
		Wake:       s.claim.Wake,
		ClaimedAt:  s.claim.ClaimedAt,
		Attempts:   s.claim.Attempts,
		Abandons:   s.claim.Abandons,
		Poison:     s.claim.Poison,
	}
}

// micros is an instant as the indexes keep it.
func micros(t time.Time) int64 { return t.UnixMicro() }
