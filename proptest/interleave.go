package proptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
)

// YieldOpener makes a fresh, empty store that calls yield with the name of the point wherever
// another operation could come between two of its steps, and outside of every lock. It
// registers the store's closing with t.Cleanup.
type YieldOpener func(t T, yield func(point string)) Opened

// Interleave runs operations as coroutines that take turns at the points where the store
// yields, and holds three things against what happens:
//
//   - after every turn, the rules about what a store shows (C3, C4, C7 to C9, C11);
//   - at the end, that there is one order of the operations, each between its begin and its
//     end, in which the kit's model gives the same answers and ends in the same state;
//   - in that order, the rules about answers (A7, C1, C2, C5, C6, C12).
//
// It does so twice: rapid draws the calls of three workers and the turns (-rapid.checks says how
// often), and every interleaving of up to Options.Depth calls of two workers on two runs is tried
// (claim, commit, abandon, steal, cancel); the number of states that were visited is logged.
func Interleave(t T, open YieldOpener, o Options) {
	t.Helper()
	o = o.withDefaults()
	turns, points := 0, map[string]int{}
	rapid.Check(TB(t), func(rt *rapid.T) {
		p := newPlay(rt, open, "r1", "r2", "r3")
		defer p.end()
		p.draws(rt)
		turns += p.turns
		for point, n := range p.points {
			points[point] += n
		}
	})
	o.log(t, fmt.Sprintf("%d turns, at %d points", turns, len(points)))
	if turns > 0 && len(points) == 0 {
		t.Errorf("the store never yielded: nothing was interleaved")
		return
	}
	explore(t, open, o)
}

// play is one history whose operations take turns.
type play struct {
	t       T
	ctx     context.Context
	sched   schedule
	history *history
	initial *model
	workers []*caller
	active  []*coroutine // of each worker; nil when it has none

	clock  time.Time
	names  int
	time   int64 // the history's own
	calls  []*operation
	lines  []string
	turns  int
	points map[string]int
	before picture
}

// callerNames are the workers of a play.
var callerNames = []string{"ann", "bob", "cyd"}

// playOwners are whose runs a play has, in turn.
var playOwners = []backend.Owner{tenantless, acme, tenantless}

// newPlay opens a store with runs that are due at the start.
func newPlay(t T, open YieldOpener, runs ...string) *play {
	p := &play{t: t, ctx: context.Background(), initial: newModel(), points: map[string]int{}}
	store := open(t, p.sched.yield).Store
	p.clock = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	p.history = &history{
		store: store, start: p.clock, runs: runs, clock: func() time.Time { return p.clock },
		name: func() int { p.names++; return p.names },
		owns: func(id string) backend.Owner {
			if i := slices.Index(runs, id); i >= 0 {
				return playOwners[i%len(playOwners)]
			}
			return tenantless
		},
	}
	ref, raw := published("proof", 0)
	p.history.refs = append(p.history.refs, ref)
	for _, owner := range []backend.Owner{tenantless, acme} {
		if err := store.SaveGraph(p.ctx, owner, ref, raw); err != nil {
			t.Fatalf("SaveGraph: %v", err)
		}
	}
	for i, id := range runs {
		in := opening(id, ref, p.clock, checkpointID(1000+i))
		if _, err := store.InsertRun(p.ctx, p.history.owns(id), in); err != nil {
			t.Fatalf("InsertRun of %s: %v", id, err)
		}
		p.initial.insert(p.history.owns(id), in)
	}
	for i := range callerNames {
		p.workers = append(p.workers, &caller{history: p.history, number: i})
	}
	p.active = make([]*coroutine, len(p.workers))
	p.before = p.look()
	return p
}

func (p *play) end() { p.sched.drop(p.active) }

// each is how many calls a worker makes in a drawn play.
const each = 5

// draws draws the calls and the turns, to the end of every call.
func (p *play) draws(rt *rapid.T) {
	choose := func(n int, label string) int { return even(n).Draw(rt, label) }
	made := make([]int, len(p.workers))
	for {
		var may []int
		for i := range p.workers {
			if p.active[i] != nil || made[i] < each {
				may = append(may, i)
			}
		}
		if len(may) == 0 {
			break
		}
		if choose(8, "time passes") == 7 {
			p.clock = p.clock.Add(among(choose, "by", time.Second, ttl, ttl+tick))
			p.say("time passes, to %s", p.history.at(p.clock))
		}
		i := among(choose, "turn", may...)
		if p.active[i] == nil {
			made[i]++
			p.begin(i, p.workers[i].next(choose))
		}
		p.turn(i)
	}
	p.settle()
}

func (p *play) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf("%3d. ", len(p.lines)+1)+fmt.Sprintf(format, args...))
}

func (p *play) fail(clause, format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: %s\n\nwhat happened:\n%s\n", clause, fmt.Sprintf(format, args...), strings.Join(p.lines, "\n"))
}

// begin begins a call of a worker, without taking a step.
func (p *play) begin(i int, op *operation) {
	p.time++
	op.begun = p.time
	p.calls = append(p.calls, op)
	p.active[i] = p.sched.begin(p.ctx, op)
	p.say("%s %s", callerNames[i], op.text)
}

// step lets a worker's call go on to where the store yields next.
func (p *play) step(i int) {
	c := p.active[i]
	p.turns++
	if p.sched.step(c) {
		p.points[c.point]++
		p.say("  %s stops at %q", callerNames[i], c.point)
		return
	}
	p.time++
	c.op.ended = p.time
	p.active[i] = nil
	p.say("  %s is answered: %s", callerNames[i], c.op.answer)
}

// turn is a step, and the rules about what the store shows after it.
func (p *play) turn(i int) {
	p.t.Helper()
	op := p.active[i].op
	p.step(i)
	after := p.look()
	if verdict := stepRules(p.before, after, op); verdict != "" {
		clause, text, _ := strings.Cut(verdict, ": ")
		p.fail(clause, "%s", text)
	}
	p.before = after
}

func (p *play) look() picture {
	p.t.Helper()
	seen, err := look(p.ctx, p.history.store, nil, whole)
	if err != nil {
		p.fail("R4", "reading the whole store: %v", err)
	}
	return seen
}

// settle holds the whole history against the model. What is still under way may have taken
// effect.
func (p *play) settle() {
	p.t.Helper()
	for _, c := range p.active {
		if c != nil {
			c.op.lost = true
		}
	}
	found, result, _ := order(p.initial, p.calls, p.before, time.Minute)
	switch result {
	case porcupine.Ok:
	case porcupine.Unknown:
		p.fail("T1", "no order of the calls was found within a minute, in which the model gives the same answers")
	default:
		p.fail("T1", "there is no order of the calls in which the model gives the same answers, and ends in what the store shows:\n%s", shows(p.before, p.history.start))
	}
	if verdict := judgeOrder(p.initial, found); verdict != "" {
		clause, text, _ := strings.Cut(verdict, ": ")
		p.fail(clause, "%s", text)
	}
}

// shows tells what a store shows of its runs.
func shows(p picture, start time.Time) string {
	h := &history{start: start}
	var b strings.Builder
	for _, s := range p.Runs {
		i := p.Infos[s.Run]
		fmt.Fprintf(&b, "  %s: %s, sequence %d by %s, wake %s, claimed at %s, attempts %d, abandons %d, poison %q, %d events\n", s.Run,
			i.Document.Status, i.Document.Seq, i.Type, h.at(i.Wake), h.at(i.ClaimedAt), i.Attempts, i.Abandons, i.Poison.Reason, len(p.Events[s.Run]))
	}
	return b.String()
}

// stepRules holds the rules about states against what one turn of an operation changed.
func stepRules(before, after picture, op *operation) string {
	j := newJudge()
	j.begin()
	for id, now := range after.Infos {
		j.shape(id, now)
		j.together(id, now, after.Events[id])
		was, existed := before.Infos[id]
		if !existed {
			continue
		}
		grew := now.Document.Seq - was.Document.Seq
		if grew != 0 && (grew != 1 || op.may&mayCommit == 0 || op.run != id) {
			j.rule("C3", "the sequence of %s grew by %d while somebody %s", id, grew, op.text)
		}
		if !was.Poison.At.IsZero() && now.Poison.At.IsZero() && op.may&mayFree == 0 {
			j.rule("C7", "%s left poison while somebody %s", id, op.text)
		}
		if isTerminal(was.Document.Status) && (columnsOf(was) != columnsOf(now) || grew != 0) {
			j.rule("C8", "%s changed after its end", id)
		}
		if !now.ClaimedAt.IsZero() && now.ClaimedAt.Before(was.ClaimedAt) && op.may&mayClaim == 0 {
			j.rule("C11", "the claimed-at of %s went back", id)
		}
		if was.Owner != now.Owner {
			j.rule("A8", "the owner of %s changed", id)
		}
	}
	for id := range before.Infos {
		if _, there := after.Infos[id]; !there {
			j.rule("C8", "%s disappeared", id)
		}
	}
	slices.Sort(j.verdicts)
	if len(j.verdicts) == 0 {
		return ""
	}
	return j.verdicts[0]
}
