package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// Migration is how a run moves to another version of its graph.
type Migration struct {
	// From is the version that the run has now.
	From *graph.Compiled
	// Mapping says what becomes of the names that the version changed.
	Mapping Mapping
	// NotBefore keeps a run that has not begun from being due earlier: the instant that
	// its start named. Zero or past: at once.
	NotBefore time.Time
}

// ErrMigration is matched by every *MigrationError.
var ErrMigration = errors.New("belay: the run cannot be migrated")

// MigrationError lists every reason why a run cannot move to a version of its graph, at
// once. The run is untouched.
type MigrationError struct {
	Run      string
	To       graph.Ref
	Problems []MigrationProblem // by path
}

// MigrationProblem is one reason.
type MigrationProblem struct {
	Kind MigrationKind
	// Path is a JSON Pointer: into the mapping below /mapping, else to a part of the run,
	// named as in its encoded document, with the name of an element in the place of its
	// index ("/tasks/charge").
	Path string
	// Reason says what is wrong and what to do.
	Reason string
}

// MigrationKind says what kind of reason a problem is.
type MigrationKind string

// The kinds of problems.
const (
	MigrateOtherGraph    MigrationKind = "other_graph"    // the version is one of another graph
	MigrateUnknownName   MigrationKind = "unknown_name"   // the mapping names what a version does not have
	MigrateAmbiguous     MigrationKind = "ambiguous"      // the mapping says two things of one name
	MigrateNoCounterpart MigrationKind = "no_counterpart" // the run has a part whose name the version does not have
	MigrateDifferent     MigrationKind = "different"      // the counterpart is of another kind
	MigrateUnfit         MigrationKind = "unfit_value"    // a value does not fit its new schema
	MigrateMissingInput  MigrationKind = "missing_input"  // the version requires an input that the run was not given
	MigrateSupersteps    MigrationKind = "max_supersteps" // the run has used up the version's bound already
	MigrateNothingLeft   MigrationKind = "nothing_left"   // the run has nothing left to do but to end
	MigrateTooLarge      MigrationKind = "too_large"      // the document or the event would be over its limit
)

func (e *MigrationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: run %s to graph %s at %s", ErrMigration, e.Run, e.To.ID, e.To.Hash)
	for i, p := range e.Problems {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		if p.Path != "" {
			b.WriteString(p.Path + " ")
		}
		b.WriteString(p.Reason)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrMigration) true.
func (e *MigrationError) Is(target error) bool { return target == ErrMigration }

// Migrate proposes that a run goes on under this machine's version of its graph. The
// version need not be a newer one, so a migration can be taken back.
//
// Names that the mapping does not mention keep themselves. What the run holds moves to
// its counterpart: values and their versions, counts, the progress of barriers, pending
// nodes, pending writes, interrupts, and parked tasks with their ids, snapshots and
// timers. A node that is renamed in the middle of a superstep keeps the task id, which is
// its idempotency key, until the barrier. What was never written is the version's
// default. Nothing of the run is lost unless the mapping drops it by name, and what is
// still to be done cannot be dropped.
//
// The proposal leaves the status as it is, revokes whatever claim there is (so a
// superstep in flight is planned again, under the new version), and is due as the run
// was: at its earliest timer, or at once. changed is false, and nothing proposed, when
// the run has this version already.
//
// In this order: *claim.ArgumentError for a missing From or now, ErrInvalidDocument when
// From is not the run's version, ErrInactiveRun, and *MigrationError.
func (m *Machine) Migrate(d *Document, to Migration, now time.Time) (p Proposal, changed bool, err error) {
	if err := m.ready(); err != nil {
		return p, false, err
	}
	switch {
	case d == nil:
		return p, false, invalid("it is nil")
	case to.From == nil:
		return p, false, &claim.ArgumentError{Argument: "from", Reason: "is nil: pass the compiled version that the run has now"}
	case to.From.Ref() != d.Graph:
		ref := to.From.Ref()
		return p, false, invalid("run %s belongs to graph %s at %s, and not to %s at %s", d.ID, d.Graph.ID, d.Graph.Hash, ref.ID, ref.Hash)
	}
	if now, err = checkNow(now); err != nil {
		return p, false, err
	}
	if d.Status.Terminal() {
		return p, false, fmt.Errorf("%w: run %s is %s", ErrInactiveRun, d.ID, d.Status)
	}
	if d.Graph == m.graph.Ref() {
		return p, false, nil
	}
	g := &migration{machine: m, from: d, c: begin(d, now, 2)}
	if p, err = g.propose(to); err != nil {
		return Proposal{}, false, err
	}
	return p, true, nil
}

// migration is one Migrate at work.
type migration struct {
	machine  *Machine
	from     *Document
	c        *commit
	problems []MigrationProblem

	old                  *graph.Compiled
	nodes, fields, edges counterparts
}

func (g *migration) problem(kind MigrationKind, path, format string, args ...any) {
	g.problems = append(g.problems, MigrationProblem{Kind: kind, Path: path, Reason: fmt.Sprintf(format, args...)})
}

// refusal is the answer once there are problems.
func (g *migration) refusal() error {
	if len(g.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(g.problems, func(a, b MigrationProblem) int { return strings.Compare(a.Path, b.Path) })
	return &MigrationError{Run: g.from.ID, To: g.machine.graph.Ref(), Problems: g.problems}
}

func (g *migration) propose(to Migration) (Proposal, error) {
	m, d, next := g.machine, g.from, g.c.next
	if ref := m.graph.Ref(); ref.ID != d.Graph.ID {
		g.problem(MigrateOtherGraph, "/graph", "is %s, and the version is one of %s: a run stays a run of its graph", d.Graph.ID, ref.ID)
		return Proposal{}, g.refusal()
	}
	g.old = to.From
	g.match(to.Mapping)
	if limit := m.graph.MaxSupersteps(); limit > 0 && d.Step > limit {
		g.problem(MigrateSupersteps, "/step", "is %d, and the version ends a run after %d supersteps: raise policies.max_supersteps", d.Step, limit)
	}
	if len(d.Pending) == 0 && len(d.Tasks) == 0 {
		g.problem(MigrateNothingLeft, "/pending", "is empty, and so are the tasks: the run only has to end, let it")
	}
	g.moveInput()
	g.moveState()
	g.moveCounts()
	g.moveBarriers()
	g.movePending()
	g.moveTasks()
	g.moveWrites()
	next.Graph = m.graph.Ref()
	next.Lineage = append(slices.Clip(d.Lineage), Ancestor{Hash: d.Graph.Hash, Until: next.Seq})
	g.moveInterrupts()
	if err := g.refusal(); err != nil {
		return Proposal{}, err
	}
	told, err := value.Of(migrated{From: d.Graph.Hash, To: next.Graph.Hash, Mapping: to.Mapping})
	if err != nil {
		return Proposal{}, err // names of graphs are plain
	}
	g.c.emit(EventGraphMigrated).Data = told
	p := g.c.propose(checkpoint.GraphMigrated, g.schedule(instant(to.NotBefore)))
	if err := m.fitsGoing(p); err != nil {
		g.problem(MigrateTooLarge, "", "would be too large: %v", err)
		return Proposal{}, g.refusal()
	}
	return p, nil
}

// migrated is the data of a graph_migrated event.
type migrated struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Mapping Mapping `json:"mapping,omitzero"`
}

// schedule is when the migrated run is due: nothing that it waits for has changed.
func (g *migration) schedule(notBefore time.Time) checkpoint.Schedule {
	d := g.c.next
	switch {
	case d.Status == Waiting:
		return checkpoint.Schedule{Kind: checkpoint.ReleaseExternal}
	case len(d.Tasks) > 0 || d.onlyInterruptsOpen():
		return releaseAt(earliest(d.Timers))
	case notBefore.After(g.c.now):
		return releaseAt(notBefore)
	}
	return checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
}
