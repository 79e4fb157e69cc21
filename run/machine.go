package run

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// Proposal is a commit the machine proposes: nothing else may change a document.
// Whoever commits it adds a checkpoint id, and may turn a retain into a
// release-now; nothing else.
type Proposal struct {
	// Document is the next document, with its sequences already advanced.
	Document *Document
	// Events are those of this commit, in order, the closing checkpoint_committed last.
	Events   []Event
	Type     checkpoint.Type
	Schedule checkpoint.Schedule
	// Expected is the checkpoint sequence this proposal builds on (0 for Init).
	Expected int64
	Now      time.Time
}

// Machine runs one compiled graph. It is immutable and safe for concurrent use.
type Machine struct {
	graph  *graph.Compiled
	limits value.Limits
	defs   map[string]value.Value // shared schemas, for the schemas of questions
}

// NewMachine makes the machine of a graph. Zero limits mean their defaults. The
// machine of a nil graph answers every call with an error.
func NewMachine(g *graph.Compiled, limits value.Limits) *Machine {
	m := &Machine{graph: g, limits: limits.WithDefaults()}
	if g != nil {
		m.defs = g.Document().Defs
	}
	return m
}

// Graph is the graph the machine runs.
func (m *Machine) Graph() *graph.Compiled { return m.graph }

// accepts checks what every call of the machine needs, and normalizes now.
func (m *Machine) accepts(d *Document, now time.Time) (time.Time, error) {
	if err := m.ready(); err != nil {
		return now, err
	}
	if d == nil {
		return now, invalid("it is nil")
	}
	if ref := m.graph.Ref(); d.Graph != ref {
		return now, invalid("run %s belongs to graph %s at %s, and this is the machine of %s at %s", d.ID, d.Graph.ID, d.Graph.Hash, ref.ID, ref.Hash)
	}
	return checkNow(now)
}

func (m *Machine) ready() error {
	if m == nil || m.graph == nil {
		return &claim.ArgumentError{Argument: "graph", Reason: "is nil: make the machine of a compiled graph"}
	}
	return nil
}

func checkNow(now time.Time) (time.Time, error) {
	at := instant(now)
	if at.IsZero() {
		return at, &claim.ArgumentError{Argument: "now", Reason: "is the zero time: the machine reads no clock, pass the instant"}
	}
	return at, nil
}

// earliest is the first of a running document's timers.
func earliest(timers []Timer) (at time.Time) {
	for i := range timers {
		if at.IsZero() || timers[i].At.Before(at) {
			at = timers[i].At
		}
	}
	return at
}

func terminal() checkpoint.Schedule { return checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal} }

func releaseAt(at time.Time) checkpoint.Schedule {
	return checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: at}
}

// fail proposes the end of the run. What the superstep did is discarded: state and
// progress stay as they were committed. Each of the verdicts gets its event.
func (m *Machine) fail(d *Document, f Failure, verdicts []verdict, now time.Time) Proposal {
	p := failed(d, f, verdicts, now)
	if m.fits(p, m.limits.Document) == nil {
		return p
	}
	// Room for this short failure is kept free in every document (see headroom).
	return failed(d, Failure{
		Code:    CodeTooLarge,
		Message: fmt.Sprintf("the run failed with %s, and the account of it is over the limit of %d bytes a document or %d an event", shortCode(f.Code), m.limits.Document, m.limits.EventPayload),
	}, nil, now)
}

func failed(d *Document, f Failure, verdicts []verdict, now time.Time) Proposal {
	c := begin(d, now, len(verdicts)+2)
	for i := range verdicts {
		verdicts[i].tell(c.emit(EventNodeFailed))
	}
	c.end(Failed)
	c.next.Failure = &f
	e := c.emit(EventRunFailed)
	e.Node, e.Failure = f.Node, &f
	return c.propose(checkpoint.RunFailed, terminal())
}

func shortCode(code string) string {
	if len(code) > 64 {
		return "an overlong code"
	}
	return code
}
