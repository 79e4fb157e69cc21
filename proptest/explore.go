package proptest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/claim"
)

// explorers are how many workers an exploration has.
const explorers = 2

// explore tries every interleaving of up to o.Depth calls of two workers on two runs. It goes
// depth first, plays each history from its start, and goes no further from a state it
// has seen: the same content of the store (as far as it shows), held by the same claims, with the same beliefs of the
// workers, and with calls under way that have seen the same.
func explore(t T, open YieldOpener, o Options) {
	t.Helper()
	x := &exploration{t: t, open: open, depth: o.Depth, seen: map[[sha256.Size]byte]bool{}}
	begun := time.Now()
	x.visit(x.root())
	o.log(t, fmt.Sprintf("every interleaving of %d calls of %d workers on 2 runs: %d states visited by %d turns, %d histories judged, in %v",
		o.Depth, explorers, len(x.seen), x.turns, x.histories, time.Since(begun).Round(time.Millisecond)))
}

type exploration struct {
	t                T
	open             YieldOpener
	depth            int
	seen             map[[sha256.Size]byte]bool
	turns, histories int
}

// turnOf is one turn: the worker that has it, and which call of the menu it begins when it has
// none under way.
type turnOf struct{ worker, choice int }

// place is a state of an exploration, and the way there.
type place struct {
	way   []turnOf
	shown picture
	// holders are the claims that hold the runs, by name.
	holders map[string]string
	// watched is what each worker's call under way has found at its turns, took the runs that
	// its claim under way has taken.
	watched, took [explorers][]string
	// next are the turns that may be taken.
	next []turnOf
	key  [sha256.Size]byte
}

// opening plays the first claim, which no choice comes before.
func (x *exploration) opening() *play {
	x.t.Helper()
	p := newPlay(x.t, x.open, "r1", "r2")
	x.begin(p, turnOf{})
	for p.active[0] != nil {
		p.step(0)
	}
	return p
}

// root is where an exploration begins: the first worker holds the first run.
func (x *exploration) root() *place {
	x.t.Helper()
	p := x.opening()
	defer p.end()
	p.before = p.look()
	here := &place{holders: map[string]string{"r1": "0.0"}}
	x.arrive(p, here)
	return here
}

// onward plays the way to a place, and from there one more turn.
func (x *exploration) onward(from *place, turn turnOf) *place {
	x.t.Helper()
	p := x.opening()
	defer p.end()
	for _, earlier := range from.way {
		x.begin(p, earlier)
		p.step(earlier.worker)
	}
	p.before = from.shown
	here := &place{
		way: append(slices.Clone(from.way), turn), holders: map[string]string{},
		watched: from.watched, took: from.took,
	}
	x.begin(p, turn)
	op, i := p.active[turn.worker].op, turn.worker
	here.watched[i] = append(slices.Clone(from.watched[i]), storeKey(from.shown, from.holders))
	x.turns++
	p.turn(i)
	for id, now := range p.before.Infos {
		was := from.shown.Infos[id]
		changed := op.may&mayClaim != 0 && columnsOf(was) != columnsOf(now)
		if changed {
			here.took[i] = append(slices.Clone(here.took[i]), id)
		}
		switch holder, held := from.holders[id]; {
		case now.ClaimedAt.IsZero():
		case changed:
			here.holders[id] = op.name
		case held:
			here.holders[id] = holder
		}
	}
	x.arrive(p, here)
	return here
}

// arrive completes a place that a play has come to, and judges the play when nothing new
// follows from here.
func (x *exploration) arrive(p *play, here *place) {
	x.t.Helper()
	here.shown = p.before
	made := len(p.calls) - 1
	for i := range explorers {
		if c := p.active[i]; c != nil {
			c.op.took = here.took[i]
			here.next = append(here.next, turnOf{worker: i})
			continue
		}
		here.watched[i], here.took[i] = nil, nil
		if made < x.depth {
			for choice := range x.menu(p, i) {
				here.next = append(here.next, turnOf{i, choice})
			}
		}
	}
	here.key = x.keyOf(p, here, x.depth-made)
	if x.seen[here.key] || len(here.next) == 0 {
		x.histories++
		p.settle()
	}
}

// begin begins the call of a turn, when it is a call's first. What a call is named after, and
// so what it stores, is the same in every history in which its worker did the same.
func (x *exploration) begin(p *play, turn turnOf) {
	i := turn.worker
	if p.active[i] != nil {
		return
	}
	earlier := 0
	for _, c := range p.calls {
		if c.worker == i {
			earlier++
		}
	}
	p.names = 1000*(1+i) + 10*earlier
	op := x.menu(p, i)[turn.choice]()
	op.name = fmt.Sprintf("%d.%d", i, earlier)
	p.begin(i, op)
}

// visit goes on from a place in every way.
func (x *exploration) visit(from *place) {
	x.t.Helper()
	if x.seen[from.key] {
		return
	}
	x.seen[from.key] = true
	for _, turn := range from.next {
		x.visit(x.onward(from, turn))
	}
}

// menu lists the calls that a worker may make, given what it believes.
func (x *exploration) menu(p *play, i int) []func() *operation {
	w, now := p.workers[i], p.history.start.Add(time.Second)
	claims := func(limit int, after time.Duration) func() *operation {
		return func() *operation {
			return w.claim(claim.Policy{Now: p.history.start.Add(after), TTL: ttl, Limit: limit, MaxAttempts: 2})
		}
	}
	menu := []func() *operation{
		claims(1, 0),
		claims(2, 2*ttl),
		func() *operation { return w.mutate("r1", cancels, now) },
		func() *operation { return w.mutate("r2", cancels, now) },
	}
	for _, v := range w.views {
		menu = append(
			menu,
			func() *operation { return w.commit(w.draft(v, toRetain, now), v) },
			func() *operation { return w.commit(w.draft(v, toDone, now), v) },
			func() *operation {
				return w.abandon(v, claim.AbandonPolicy{Now: now, ExpectedSeq: v.lease.Seq, MaxAbandons: 1, RetryAt: now})
			},
		)
	}
	return menu
}

// keyOf is everything that decides what may follow.
func (x *exploration) keyOf(p *play, here *place, left int) [sha256.Size]byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%d left\n%s", left, storeKey(here.shown, here.holders))
	for i := range explorers {
		for _, v := range p.workers[i].views {
			fmt.Fprintf(&b, "%d believes %s, lease %s, sequence %d, document %d\n", i, v.lease.Run, v.name, v.lease.Seq, v.document.Seq)
		}
		if c := p.active[i]; c != nil {
			fmt.Fprintf(&b, "%d %s at %s, saw %q\n", i, c.op.text, c.point, here.watched[i])
		}
	}
	return sha256.Sum256([]byte(b.String()))
}

// storeKey is everything that a store holds.
func storeKey(p picture, holders map[string]string) string {
	var b strings.Builder
	for _, s := range p.Runs {
		i := p.Infos[s.Run]
		fmt.Fprintf(&b, "%s %s %d %s %s %d %d %d %d %d %s %d held by %q\n", s.Run, i.Document.Status, i.Document.Seq, i.CheckpointID, i.Type,
			i.Wake.UnixMicro(), i.ClaimedAt.UnixMicro(), i.Attempts, i.Abandons, i.Poison.At.UnixMicro(), i.Poison.Reason, len(p.Events[s.Run]), holders[s.Run])
	}
	return b.String()
}
