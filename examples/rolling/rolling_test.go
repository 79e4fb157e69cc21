//go:build unix

package rolling

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// size is how many processes the fleet has.
const size = 4

// usual is how the fleet's processes are run. The bound on abandons is far above what happens while all
// of the fleet is of the release before, and runs of the next one's graph are in flight.
var usual = limits{ttl: ttl, poll: 200 * time.Millisecond, backoff: 400 * time.Millisecond, abandons: 1000}

// The ways to run the next release: while older processes read, and afterwards.
var (
	pinned   = []string{"-write-format", "1"}
	unpinned = []string{"-write-format", "2"}
)

// TestRolling: a fleet of four processes goes from one release to the next, back and forward again, one
// process at a time, while orders are placed and processes are killed. Every order comes to its right
// end, and no counter of any run shows that something has happened.
func TestRolling(t *testing.T) {
	b := built(t)
	onEach(t, func(t *testing.T, d database) { newFleet(t, d, usual).roll(t, b) })
}

// fleet is four processes on one database, and the world around them.
type fleet struct {
	database
	limits     limits
	processes  []*process
	ledger     *ledger
	orders     *orders
	watch      *watch
	store      backend.Store
	handedBack atomic.Int64
	killed     []effect // that were reported, and committed by another process

	began                     time.Time
	startedBefore, doneBefore int
	handedBackBefore          int64
}

func newFleet(t *testing.T, d database, l limits) *fleet {
	f := &fleet{database: d, limits: l, ledger: newLedger(t), began: time.Now()}
	common := append(slices.Clone(d.args), "-ttl", l.ttl.String(), "-poll", l.poll.String(),
		"-backoff", l.backoff.String(), "-abandons", fmt.Sprint(l.abandons))
	for slot := range size {
		f.processes = append(f.processes, &process{slot: slot, common: common, ledger: f.ledger, handedBack: &f.handedBack})
	}
	f.orders = &orders{fleet: f.processes}
	return f
}

// roll takes all steps.
func (f *fleet) roll(t *testing.T, b binaries) {
	f.startAll(t, b.before)
	f.orders.trade(t)
	eventually(t, "orders to be placed", func() bool { return f.orders.count() >= 40 })
	older := f.orders.of(func(*order) bool { return true })[0].Graph
	f.migrate(t)
	stop := f.watch.start(t)
	f.goesOn(t)
	f.tell(t, "the release before, on the next schema")

	// Forward. Runs of the new graph meet processes that cannot run them.
	f.replace(t, 0, b.next, pinned)
	newer := f.orders.place(t, order{}, 0, "").Graph
	if newer == older {
		t.Fatal("the next release does not start another version of the graph")
	}
	f.handsBack(t)
	f.kill(t, 3)
	f.replace(t, 1, b.next, pinned)
	f.kill(t, 0)
	f.replace(t, 2, b.next, pinned)
	f.replace(t, 3, b.next, pinned)
	f.tell(t, "forward, pinned to format 1")

	// Back. What is left of the new graph waits for its release, unharmed.
	f.replace(t, 0, b.before, nil)
	f.kill(t, 1)
	f.replace(t, 1, b.before, nil)
	f.replace(t, 2, b.before, nil)
	f.kill(t, 2)
	var foreign []*order
	for range 3 {
		foreign = append(foreign, f.orders.place(t, order{input: input{Hold: "pause", Pause: 1500}}, 3, newer))
	}
	f.replace(t, 3, b.before, nil)
	for _, one := range foreign {
		eventually(t, "a run of the new graph to be handed back by all", func() bool { return f.watch.handedBack(one.Run) >= 3 })
	}
	f.tell(t, "back")

	for slot := range size {
		f.replace(t, slot, b.next, pinned)
		if slot == 1 {
			f.kill(t, 3)
		}
	}
	f.finished(t, foreign)
	if n := f.count(t, f.newer); n != 0 {
		t.Errorf("%d documents are of a newer format, and every writer was pinned", n)
	}
	f.tell(t, "forward again, pinned to format 1")

	for slot := range size {
		f.replace(t, slot, b.next, unpinned)
		if slot == 2 {
			f.kill(t, 0)
		}
	}
	eventually(t, "documents of the newer format", func() bool { return f.count(t, f.newer) > 0 })
	f.tell(t, "unpinned")

	f.migrateRuns(t, older, newer)
	f.tell(t, "live runs migrated")

	close(f.orders.stop)
	f.orders.customers.Wait()
	eventually(t, "all answers to be given", func() bool { return f.orders.approve(true) == 0 })
	eventually(t, "all runs to end", func() bool { return len(f.list(t, run.Running, run.Waiting)) == 0 })
	f.tell(t, "at the end")
	stop()
	f.close(t)
	if err := f.watch.verdict(); err != nil {
		t.Errorf("in %d samples:\n%v", f.watch.samples, err)
	}
	f.verify(t, older, newer)
}

func (f *fleet) startAll(t *testing.T, binary string, extra ...string) {
	t.Helper()
	var starting sync.WaitGroup
	for _, p := range f.processes {
		starting.Go(func() { p.start(t, binary, extra...) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// migrate brings the schema up to date, beneath the processes of the release before.
func (f *fleet) migrate(t *testing.T) {
	t.Helper()
	before, began := f.lines(t, f.applied), time.Now()
	f.store = f.open(t)
	took := time.Since(began)
	f.watch = &watch{store: f.store, limits: f.limits}
	added := f.lines(t, f.applied)[len(before):]
	t.Logf("%s: the schema of the release before is %s; the next one adds [%s], in %v", f.name,
		strings.Join(before, " "), strings.Join(added, " "), took.Round(time.Millisecond))
}

// replace ends a process in order and starts another in its place, and sees that the fleet goes on.
func (f *fleet) replace(t *testing.T, slot int, binary string, extra []string) {
	t.Helper()
	f.processes[slot].terminate(t)
	f.processes[slot].start(t, binary, extra...)
	f.goesOn(t)
}

// kill kills a process after it has done something and before it has recorded it, and starts it again.
func (f *fleet) kill(t *testing.T, slot int) {
	t.Helper()
	p := f.processes[slot]
	select {
	case done := <-f.ledger.hold(slot):
		f.killed = append(f.killed, done)
	case <-time.After(patience):
		t.Fatalf("process %d has nothing to do", slot)
	}
	f.watch.killed()
	p.kill(t)
	p.start(t, p.binary, p.extra...)
	f.goesOn(t)
}

// goesOn waits until more orders are done.
func (f *fleet) goesOn(t *testing.T) {
	t.Helper()
	before := len(f.list(t, run.Done))
	eventually(t, "orders to be done", func() bool { return len(f.list(t, run.Done)) >= before+5 })
}

// handsBack waits until a run is handed back.
func (f *fleet) handsBack(t *testing.T) {
	t.Helper()
	before := f.handedBack.Load()
	eventually(t, "a process of the release before to hand a run back", func() bool { return f.handedBack.Load() > before })
}

// finished waits until these orders are done.
func (f *fleet) finished(t *testing.T, these []*order) {
	t.Helper()
	for _, one := range these {
		eventually(t, "the runs of the new graph to go on", func() bool { return f.inspect(t, one.Run).Document.Status == run.Done })
	}
}

// migrateRuns moves runs that wait for a person or for a time to the new graph.
func (f *fleet) migrateRuns(t *testing.T, older, newer string) {
	t.Helper()
	move := func(one *order) {
		t.Helper()
		var moved placed
		if err := f.processes[1].call("POST", "/orders/"+one.Run+"/migrate", nil, &moved); err != nil || moved.Graph != newer {
			t.Errorf("run %s is not migrated: %+v, %v", one.Run, moved, err)
		}
	}
	asking := f.orders.of(func(one *order) bool { return one.kept && one.Graph == older })
	if len(asking) == 0 {
		t.Error("no run of the older graph is parked on a question")
	}
	for _, one := range asking {
		eventually(t, "the question to be asked", func() bool { return f.inspect(t, one.Run).Document.NeedsAnswer() })
		move(one)
	}
	// One that sleeps is moved while it does: a busy machine may need a longer sleep.
	for pause := int64(4000); ; pause *= 2 {
		asleep := f.orders.place(t, order{input: input{Hold: "pause", Pause: pause}}, 2, older)
		var wake time.Time
		eventually(t, "the run to sleep", func() bool {
			info := f.inspect(t, asleep.Run)
			wake = info.Wake
			return len(info.Document.Tasks) > 0 || info.Document.Status != run.Running
		})
		if time.Until(wake) > 2*time.Second {
			move(asleep)
			f.finished(t, []*order{asleep})
			return
		}
	}
}

// close ends all processes.
func (f *fleet) close(t *testing.T) {
	t.Helper()
	for _, p := range f.processes {
		p.terminate(t)
		if len(p.errors) > 0 {
			t.Errorf("process %d logged:\n%s", p.slot, strings.Join(p.errors, "\n"))
		}
	}
}

// list lists the runs of some statuses.
func (f *fleet) list(t *testing.T, statuses ...run.Status) (all []backend.Summary) {
	t.Helper()
	if f.store == nil {
		return nil
	}
	for q := (backend.Query{Statuses: statuses, Limit: backend.MaxLimit}); ; {
		page, err := f.store.ListRuns(t.Context(), backend.System(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Runs...)
		if !page.HasMore {
			return all
		}
		q.Before = page.Next
	}
}

func (f *fleet) inspect(t *testing.T, id string) backend.Info {
	t.Helper()
	info, err := f.store.InspectRun(t.Context(), backend.System(), id)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// count is the number that a statement selects.
func (f *fleet) count(t *testing.T, statement string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(f.lines(t, statement)[0], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// tell prints what has happened in a step, and judges how long runs waited in it.
func (f *fleet) tell(t *testing.T, step string) {
	t.Helper()
	started, handedBack, done := f.orders.count(), f.handedBack.Load(), len(f.list(t, run.Done))
	failed, poisoned := len(f.list(t, run.Failed, run.Cancelled)), 0
	for _, r := range f.list(t, run.Running) {
		if !r.Poison.At.IsZero() {
			poisoned++
		}
	}
	wait := f.watch.wait()
	t.Logf("%-8s %-40s %6.1fs started %4d, done %4d, failed %d, poisoned %d, abandoned %4d, longest wait %v",
		f.name, step, time.Since(f.began).Seconds(), started-f.startedBefore, done-f.doneBefore, failed, poisoned,
		handedBack-f.handedBackBefore, wait.Round(time.Millisecond))
	f.began, f.startedBefore, f.handedBackBefore, f.doneBefore = time.Now(), started, handedBack, done
	if failed+poisoned > 0 {
		t.Errorf("%s: %d runs have failed, %d are poisoned", step, failed, poisoned)
	}
	if bound := f.limits.longestWait() + slack; wait > bound {
		t.Errorf("%s: a due run waited for %v, longer than %v", step, wait, bound)
	}
}

// verify looks at everything when it is over.
func (f *fleet) verify(t *testing.T, older, newer string) {
	t.Helper()
	for finding, err := range f.store.Features().Audit.Audit(t.Context(), backend.AuditPolicy{MaxAttempts: 5, MaxAbandons: f.limits.abandons}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("the audit found %+v", finding)
	}
	if all, placed := len(f.list(t)), f.orders.count(); all != placed {
		t.Errorf("%d runs are stored, %d orders were placed", all, placed)
	}
	effects := map[string][]effect{}
	repeated := 0
	for _, e := range f.ledger.entries {
		effects[e.Run] = append(effects[e.Run], e.effect)
		if e.times > 1 {
			repeated++
		}
	}
	if len(f.ledger.wrong) > 0 {
		t.Errorf("effects that differ from another of their key: %+v", f.ledger.wrong)
	}
	for _, e := range f.killed {
		if f.ledger.times(e.Key) < 2 {
			t.Errorf("nobody went on with %+v", e)
		}
	}
	migrated := 0
	for _, one := range f.orders.of(func(*order) bool { return true }) {
		d := f.inspect(t, one.Run).Document
		migrated += len(d.Lineage)
		if err := judgeOrder(one, d, effects[one.Run], older, newer); err != nil {
			t.Errorf("%+v: %v", one, err)
		}
	}
	t.Logf("%s: %d orders, %d migrated; %d effects, %d repeated after %d kills", f.name, f.orders.count(), migrated,
		len(f.ledger.entries), repeated, len(f.killed))
}

// judgeOrder says what is wrong with a finished order.
func judgeOrder(one *order, d *run.Document, effects []effect, older, newer string) error {
	fee, kinds := int64(0), []string{"charge", "reserve", "ship"}
	switch d.Graph.Hash {
	case older:
	case newer:
		fee, kinds = 3, []string{"charge", "notify", "reserve", "ship"}
	default:
		return fmt.Errorf("it is of graph %v", d.Graph)
	}
	var output struct {
		Total    int64  `json:"total"`
		Parcel   string `json:"parcel"`
		Notified bool   `json:"notified"`
	}
	if err := json.Unmarshal(d.Output, &output); err != nil {
		return fmt.Errorf("its output is %s: %w", d.Output, err)
	}
	total := one.Amount + fee
	if d.Status != run.Done || output.Total != total || output.Parcel != "parcel of "+one.Run || output.Notified != (d.Graph.Hash == newer) {
		return fmt.Errorf("it is %s with %s, and its total should be %d", d.Status, d.Output, total)
	}
	if moved := len(d.Lineage) > 0; moved != (d.Graph.Hash != one.Graph) {
		return fmt.Errorf("it started as %s, is of %s, and was migrated: %v", one.Graph, d.Graph.Hash, moved)
	}
	slices.SortFunc(effects, func(a, b effect) int { return cmp.Compare(a.Kind, b.Kind) })
	what := map[string]string{"reserve": fmt.Sprint(one.Amount), "charge": fmt.Sprint(total, "EUR"), "ship": fmt.Sprint(total), "notify": output.Parcel}
	var had []string
	for _, e := range effects {
		had = append(had, e.Kind)
		if e.What != what[e.Kind] {
			return fmt.Errorf("its effect is %+v, not %s", e, what[e.Kind])
		}
	}
	if !slices.Equal(had, kinds) {
		return fmt.Errorf("its effects are %v, not %v", had, kinds)
	}
	return nil
}
