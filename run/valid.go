package run

import (
	"slices"
	"unicode/utf8"

	"github.com/belay-run/belay/claim"
)

// Valid reports whether d may be stored: nil, or an error that wraps
// ErrInvalidDocument and names the rule that d breaks.
//
//   - The status is a storable one, the run id is an identifier, graph id and hash
//     are set, counters are not negative, every slice is sorted by its key without
//     doubles, every text is UTF-8, instants are UTC in whole microseconds.
//   - The lineage ascends by sequence, and not beyond the document's. Renamed nodes are
//     pending or parked, and no two nodes' tasks have one id.
//   - An output only when done, a failure (with code and message) exactly when
//     failed, a reason only when cancelled, finished-at exactly when terminal.
//   - Pending nodes and open interrupts only before the end; closed interrupts
//     only after it.
//   - Tasks and timers only while running; pending writes only beside tasks; a node
//     at most once across tasks and pending writes. A task's id is run:step:node,
//     with the node's name of when the superstep began,
//     its input hash that of its snapshot, and it has its timer; a task that waits
//     for a retry has failed before.
//   - An open interrupt's node is pending and has no other open one; resolved-at is
//     set exactly when resolved, an answer only then; an open interrupt with a
//     deadline has its timer. There is no timer beyond those.
//   - The status is waiting exactly when something is asked without a deadline, and
//     nothing has one, and nothing else can run.
//
// Values are taken to be canonical JSON, as their type promises.
func (d *Document) Valid() error {
	if d == nil {
		return invalid("it is nil")
	}
	for _, check := range []func(*Document) error{
		validIdentity, validLineage, validOutcome, validState, validProgress, validTasks, validInterrupts, validTimers, validWaiting,
	} {
		if err := check(d); err != nil {
			return err
		}
	}
	return nil
}

func validIdentity(d *Document) error {
	switch {
	case claim.CheckID("run id", d.ID) != nil:
		return invalid("the run id is not 1 to %d bytes of UTF-8 without NUL", claim.MaxID)
	case d.Graph.ID == "" || d.Graph.Hash == "":
		return invalid("run %s names no graph version", d.ID)
	case !utf8.ValidString(d.Graph.ID) || !utf8.ValidString(d.Graph.Hash):
		return invalid("the graph's id or hash is not UTF-8")
	case !d.Status.Storable():
		return invalid("the status %q is not one that is stored", d.Status)
	case d.Step < 0 || d.Seq < 0 || d.EventSeq < 0:
		return invalid("a counter is negative")
	case !storableInstant(d.StartedAt) || !storableInstant(d.UpdatedAt) || !storableInstant(d.FinishedAt):
		return invalid("a time is not UTC in whole microseconds of the years 1 to 9999")
	case checkMetadata(d.Metadata) != nil:
		return invalid("metadata: %v", checkMetadata(d.Metadata))
	}
	return nil
}

func validLineage(d *Document) error {
	for i, a := range d.Lineage {
		switch {
		case a.Hash == "" || !utf8.ValidString(a.Hash):
			return invalid("the lineage names no graph version, or one that is not UTF-8")
		case a.Until < 1 || a.Until > d.Seq || i > 0 && d.Lineage[i-1].Until >= a.Until:
			return invalid("the lineage's sequence %d is out of order, or not one of the run's", a.Until)
		}
	}
	if len(d.Renamed) == 0 {
		return nil
	}
	names := make([]string, 0, len(d.Renamed)+len(d.Pending)+len(d.Tasks))
	for i, r := range d.Renamed {
		switch {
		case i > 0 && d.Renamed[i-1].Node >= r.Node:
			return invalid("renamed nodes are not sorted, or %s is there twice", r.Node)
		case r.Node == "" || r.Was == "" || r.Was == r.Node || !utf8.ValidString(r.Node) || !utf8.ValidString(r.Was):
			return invalid("the renaming of %q names no other node, or is not UTF-8", r.Node)
		}
		if _, parked := findTask(d.Tasks, r.Node); !parked && !contains(d.Pending, r.Node) {
			return invalid("the renamed node %s is neither pending nor parked", r.Node)
		}
		names = append(names, r.Was)
	}
	unnamed := func(node string) {
		if _, ok := findRenaming(d.Renamed, node); !ok {
			names = append(names, node)
		}
	}
	for _, node := range d.Pending {
		unnamed(node)
	}
	for i := range d.Tasks {
		unnamed(d.Tasks[i].Node)
	}
	slices.Sort(names)
	for i := range names {
		if i > 0 && names[i-1] == names[i] {
			return invalid("the tasks of two nodes are called after %s", names[i])
		}
	}
	return nil
}

func validOutcome(d *Document) error {
	switch {
	case d.Output != nil && d.Status != Done:
		return invalid("an output, but the status is %s", d.Status)
	case (d.Failure != nil) != (d.Status == Failed):
		return invalid("a failure belongs to a failed run, and only to one")
	case d.Reason != "" && d.Status != Cancelled:
		return invalid("a reason of cancellation, but the status is %s", d.Status)
	case !utf8.ValidString(d.Reason):
		return invalid("the reason is not UTF-8")
	case d.FinishedAt.IsZero() == d.Status.Terminal():
		return invalid("finished-at is set exactly when the status is terminal")
	}
	if f := d.Failure; f != nil {
		switch {
		case f.Code == "" || f.Message == "":
			return invalid("the failure has no code or no message")
		case !utf8.ValidString(f.Code) || !utf8.ValidString(f.Message) || !utf8.ValidString(f.Node):
			return invalid("the failure is not UTF-8")
		}
	}
	return nil
}

func validState(d *Document) error {
	if err := validChannels("input", d.Input); err != nil {
		return err
	}
	for _, c := range d.Input {
		if c.Version > 1 {
			return invalid("input %s has version %d: only the start writes an input", c.Name, c.Version)
		}
	}
	return validChannels("state", d.State)
}

func validChannels(what string, cs []Channel) error {
	for i, c := range cs {
		switch {
		case i > 0 && cs[i-1].Name >= c.Name:
			return invalid("%s is not sorted by name, or has %s twice", what, c.Name)
		case len(c.Value) == 0:
			return invalid("%s %s has no value", what, c.Name)
		case c.Version < 0:
			return invalid("%s %s has a negative version", what, c.Name)
		case !utf8.ValidString(c.Name):
			return invalid("a name of %s is not UTF-8", what)
		}
	}
	return nil
}

func validProgress(d *Document) error {
	for i, e := range d.Edges {
		if i > 0 && d.Edges[i-1].Edge >= e.Edge || e.Fired < 0 || !utf8.ValidString(e.Edge) {
			return invalid("edges: %s is out of order, twice, or has a negative count", e.Edge)
		}
	}
	for i, b := range d.Barriers {
		if i > 0 && d.Barriers[i-1].Edge >= b.Edge || len(b.Sources) == 0 || !utf8.ValidString(b.Edge) {
			return invalid("barriers: %s is out of order, twice, or collected nothing", b.Edge)
		}
		if !ascending(b.Sources) {
			return invalid("barriers: the sources of %s are not sorted", b.Edge)
		}
	}
	for i, c := range d.Completed {
		if i > 0 && d.Completed[i-1].Node >= c.Node || c.Count < 0 || !utf8.ValidString(c.Node) {
			return invalid("completed: %s is out of order, twice, or has a negative count", c.Node)
		}
	}
	switch {
	case !ascending(d.Changed):
		return invalid("changed names are not sorted")
	case !ascending(d.Pending):
		return invalid("pending nodes are not sorted")
	case len(d.Pending) > 0 && d.Status.Terminal():
		return invalid("pending nodes, but the status is %s", d.Status)
	}
	return nil
}

// ascending: strictly, so sorted and without doubles, and UTF-8.
func ascending(names []string) bool {
	for i, n := range names {
		if i > 0 && names[i-1] >= n || !utf8.ValidString(n) {
			return false
		}
	}
	return true
}

func validTasks(d *Document) error {
	switch {
	case len(d.Tasks) > 0 && d.Status != Running:
		return invalid("tasks, but the status is %s", d.Status)
	case len(d.Writes) > 0 && len(d.Tasks) == 0:
		return invalid("pending writes without a parked task")
	}
	for i, t := range d.Tasks {
		switch {
		case i > 0 && d.Tasks[i-1].Node >= t.Node:
			return invalid("tasks are not sorted by node, or %s has two", t.Node)
		case !isTaskID(t.ID, d.ID, d.Step, d.taskName(t.Node)):
			return invalid("the task of %s is not named run:step:node", t.Node)
		case t.Failures < 0:
			return invalid("task %s has a negative count", t.ID)
		case t.Reason != ParkRetry && t.Reason != ParkSnooze:
			return invalid("task %s parks for no known reason", t.ID)
		case t.Reason == ParkRetry && t.Failures == 0:
			return invalid("task %s waits for a retry, but has not failed", t.ID)
		case t.PlannedAt.IsZero() || !storableInstant(t.PlannedAt):
			return invalid("task %s has no planned-at in whole microseconds", t.ID)
		case !utf8.ValidString(t.LastError) || !utf8.ValidString(t.Node):
			return invalid("task %s holds text that is not UTF-8", t.ID)
		}
		if err := validChannels("the snapshot of "+t.ID, t.Snapshot); err != nil {
			return err
		}
		if t.InputHash != inputHash(t.Snapshot) {
			return invalid("task %s: the input hash is not that of the snapshot", t.ID)
		}
	}
	for i, w := range d.Writes {
		_, parked := findTask(d.Tasks, w.Node)
		switch {
		case i > 0 && d.Writes[i-1].Node >= w.Node:
			return invalid("pending writes are not sorted by node, or %s has two", w.Node)
		case parked:
			return invalid("node %s has both a task and a pending write", w.Node)
		case w.Skipped && len(w.Update) > 0:
			return invalid("the skipped node %s has an update", w.Node)
		case !utf8.ValidString(w.Reason) || !utf8.ValidString(w.Node):
			return invalid("the pending write of %s holds text that is not UTF-8", w.Node)
		}
		if err := validChannels("the pending write of "+w.Node, w.Update); err != nil {
			return err
		}
	}
	return nil
}

func validInterrupts(d *Document) error {
	for k := range d.Interrupts {
		i := &d.Interrupts[k]
		switch {
		case i.ID == "" || !utf8.ValidString(i.ID) || !utf8.ValidString(i.Node) || !utf8.ValidString(i.Field):
			return invalid("an interrupt without id, or not UTF-8")
		case k > 0 && d.Interrupts[k-1].ID >= i.ID:
			return invalid("interrupts are not sorted by id, or %s is there twice", i.ID)
		case i.Node == "":
			return invalid("interrupt %s names no node", i.ID)
		case !storableInstant(i.Deadline) || !storableInstant(i.RequestedAt) || !storableInstant(i.ResolvedAt):
			return invalid("interrupt %s: a time is not in whole microseconds", i.ID)
		case i.ResolvedAt.IsZero() == (i.Status == InterruptResolved):
			return invalid("interrupt %s: resolved-at is set exactly when it is resolved", i.ID)
		case i.Answer != nil && i.Status != InterruptResolved:
			return invalid("interrupt %s has an answer, but is %s", i.ID, i.Status)
		}
		switch i.Status {
		case InterruptOpen:
			if err := validOpen(d, k); err != nil {
				return err
			}
		case InterruptClosed:
			if !d.Status.Terminal() {
				return invalid("interrupt %s is closed, but the status is %s", i.ID, d.Status)
			}
		case InterruptResolved:
		default:
			return invalid("interrupt %s has the unknown status %q", i.ID, i.Status)
		}
	}
	askers := d.askers()
	for k := range askers {
		if k > 0 && askers[k-1] == askers[k] {
			return invalid("node %s has two open interrupts", askers[k])
		}
	}
	return nil
}

func validOpen(d *Document, k int) error {
	i := &d.Interrupts[k]
	if d.Status.Terminal() {
		return invalid("interrupt %s is open, but the status is %s", i.ID, d.Status)
	}
	if !contains(d.Pending, i.Node) {
		return invalid("interrupt %s is open, but its node %s is not pending", i.ID, i.Node)
	}
	if _, parked := findTask(d.Tasks, i.Node); parked {
		return invalid("node %s is parked and asks at once", i.Node)
	}
	return nil
}

func validTimers(d *Document) error {
	if len(d.Timers) > 0 && d.Status != Running {
		return invalid("timers, but the status is %s", d.Status)
	}
	want := len(d.Tasks)
	for i, t := range d.Timers {
		switch {
		case i > 0 && compareTimers(d.Timers[i-1], t) >= 0:
			return invalid("timers are not sorted, or %s %s has two", t.Kind, t.Key)
		case t.At.IsZero() || !storableInstant(t.At):
			return invalid("the timer of %s %s has no time in whole microseconds", t.Kind, t.Key)
		case t.Kind != TimerTask && t.Kind != TimerInterrupt:
			return invalid("a timer of the unknown kind %q", t.Kind)
		}
	}
	for _, t := range d.Tasks {
		if _, ok := findTimer(d.Timers, TimerTask, t.ID); !ok {
			return invalid("task %s has no timer", t.ID)
		}
	}
	for k := range d.Interrupts {
		i := &d.Interrupts[k]
		if i.Status != InterruptOpen || i.Deadline.IsZero() {
			continue
		}
		want++
		if at, ok := findTimer(d.Timers, TimerInterrupt, i.ID); !ok || !at.Equal(i.Deadline) {
			return invalid("interrupt %s has a deadline, but no timer at it", i.ID)
		}
	}
	if len(d.Timers) != want {
		return invalid("a timer without its task or its open interrupt")
	}
	return nil
}

func validWaiting(d *Document) error {
	asks := d.onlyInterruptsOpen() && len(d.Timers) == 0
	switch {
	case d.Status == Waiting && !asks:
		return invalid("waiting, but something else than an open interrupt without a deadline is left")
	case d.Status == Running && asks:
		return invalid("running, but nothing is left except open interrupts without a deadline")
	}
	return nil
}
