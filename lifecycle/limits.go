package lifecycle

import (
	"slices"
	"sync"

	"github.com/belay-run/belay/run"
)

// limits bounds how many nodes of a type are executed at once. A node that has to wait holds no
// goroutine; whoever leaves starts the one that has waited longest.
type limits struct {
	mu    sync.Mutex
	types map[string]*limit // of limited types only; the map never changes
}

type limit struct {
	free    int
	waiting []*attempt
}

func newLimits(config map[string]int) *limits {
	l := &limits{types: make(map[string]*limit, len(config))}
	for name, n := range config {
		l.types[name] = &limit{free: n}
	}
	return l
}

// enter reports whether the attempt may run now. If not, it is launched when its turn comes,
// unless it is cut before.
func (l *limits) enter(a *attempt) bool {
	t := l.types[a.activation.Node.Use]
	if t == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.free > 0 || a.vehicle.ended() != nil { // what has ended will not begin, and must not wait
		t.free--
		return true
	}
	t.waiting = append(t.waiting, a)
	return false
}

// leave gives up a turn.
func (l *limits) leave(name string) {
	t := l.types[name]
	if t == nil {
		return
	}
	l.mu.Lock()
	t.free++
	var next *attempt
	if t.free > 0 && len(t.waiting) > 0 {
		t.free--
		next = t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	l.mu.Unlock()
	if next != nil {
		next.vehicle.launch(next)
	}
}

// cut ends those of a vehicle's attempts that still wait, and reports whether the last
// of its superstep was among them: the caller then has the baton to hand on.
func (l *limits) cut(attempts []attempt) (last bool) {
	if len(l.types) == 0 {
		return false
	}
	for i := range attempts {
		a := &attempts[i]
		if l.remove(a) && a.finish(run.Result{}, true) {
			last = true
		}
	}
	return last
}

func (l *limits) remove(a *attempt) bool {
	t := l.types[a.activation.Node.Use]
	if t == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(t.waiting, a)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}
