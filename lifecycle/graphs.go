package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// program is a graph made ready to run here.
type program struct {
	machine *run.Machine

	once     sync.Once
	prepared *node.Prepared
	refusal  error // why this registry cannot run it; kept, since neither ever changes
}

// bind binds the graph's nodes to this engine's code, once.
func (p *program) bind(e *Engine) (*node.Prepared, error) {
	p.once.Do(func() {
		if p.prepared, p.refusal = e.cfg.Nodes.Prepare(p.machine.Graph(), e.cfg.MaxNodeTimeout); p.refusal == nil {
			p.prepared = p.prepared.Wrap(e.cfg.Middleware...)
		}
	})
	return p.prepared, p.refusal
}

// graphs compiles each graph version once. Programs are shared by content, but an owner
// gets one only after the backend has shown that the graph is the owner's.
type graphs struct {
	mu       sync.RWMutex
	programs map[graph.Ref]*program
	owned    map[ownedRef]*program
	loading  map[ownedRef]*load
	refused  map[ownedRef]refused
}

// refused is why a graph version could not be made ready a moment ago.
type refused struct {
	err   error
	until time.Time // by the engine's clock
}

type ownedRef struct {
	owner backend.Owner
	ref   graph.Ref
}

// load is one compilation that others wait for.
type load struct {
	waiting []event
	done    bool
	program *program
	err     error
	// forsaken: it came to no answer that is anybody else's, since its caller's context ended
	// under way, or the backend panicked.
	forsaken bool
}

const (
	// maxPrograms bounds the cache; what is dropped is compiled again when it is needed.
	maxPrograms = 4096
	// maxRefused bounds what is remembered of graphs that are missing or damaged, and
	// refusedFor for how long: many runs of one cost one read, and one that is put right is found soon.
	maxRefused = 256
	refusedFor = 5 * time.Second
)

func newGraphs() *graphs {
	return &graphs{
		programs: map[graph.Ref]*program{},
		owned:    map[ownedRef]*program{},
		loading:  map[ownedRef]*load{},
		refused:  map[ownedRef]refused{},
	}
}

// programToDrive is the program of an owner's graph for a run that was claimed. Unlike a caller,
// who may just have learnt that the graph is there now, a run has time: that its graph is
// missing or damaged is believed for a while.
func (e *Engine) programToDrive(ctx context.Context, owner backend.Owner, ref graph.Ref) (*program, error) {
	key := ownedRef{owner, ref}
	if err := e.graphs.refusal(key, e.clock.Now()); err != nil {
		return nil, err
	}
	p, err := e.program(ctx, owner, ref)
	if err != nil && graphCode(err) != "" {
		e.graphs.refuse(key, err, e.clock.Now())
	}
	return p, err
}

func (g *graphs) refusal(key ownedRef, now time.Time) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if r, ok := g.refused[key]; ok && now.Before(r.until) && g.owned[key] == nil {
		return r.err
	}
	return nil
}

func (g *graphs) refuse(key ownedRef, err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for old, r := range g.refused {
		if !now.Before(r.until) || len(g.refused) >= maxRefused {
			delete(g.refused, old)
		}
	}
	g.refused[key] = refused{err: err, until: now.Add(refusedFor)}
}

// program is the program of an owner's graph.
func (e *Engine) program(ctx context.Context, owner backend.Owner, ref graph.Ref) (*program, error) {
	key := ownedRef{owner, ref}
	g := e.graphs
	g.mu.RLock()
	p := g.owned[key]
	g.mu.RUnlock()
	if p != nil {
		return p, nil
	}

	g.mu.Lock()
	if p := g.owned[key]; p != nil {
		g.mu.Unlock()
		return p, nil
	}
	if l := g.loading[key]; l != nil {
		ev := e.scheduler.NewEvent()
		l.waiting = append(l.waiting, ev)
		g.mu.Unlock()
		stop := context.AfterFunc(ctx, ev.Set)
		ev.Wait()
		stop()
		g.mu.Lock()
		done, forsaken, p, err := l.done, l.forsaken, l.program, l.err
		g.mu.Unlock()
		switch {
		case !done:
			return nil, context.Cause(ctx)
		case forsaken:
			return e.program(ctx, owner, ref)
		}
		return p, err
	}
	l := &load{forsaken: true} // until there is an answer
	g.loading[key] = l
	g.mu.Unlock()
	defer g.loaded(key, l)

	var raw []byte
	err := e.retry(ctx, func() (err error) {
		raw, err = e.store.FetchGraph(ctx, owner, ref)
		return err
	})
	if err == nil {
		p, err = e.compile(ref, raw)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		p = g.keep(key, p)
	}
	l.program, l.err, l.forsaken = p, err, err != nil && ctx.Err() != nil
	return p, err
}

// loaded lets those go on who wait for a compilation, however it ended.
func (g *graphs) loaded(key ownedRef, l *load) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.loading, key)
	l.done = true
	for _, ev := range l.waiting {
		ev.Set()
	}
}

// compile compiles what the backend has shown to the owner, unless that was done for another.
func (e *Engine) compile(ref graph.Ref, raw []byte) (*program, error) {
	e.graphs.mu.RLock()
	shared := e.graphs.programs[ref]
	e.graphs.mu.RUnlock()
	if shared != nil {
		return shared, nil
	}
	compiled, err := graph.Load(ref, raw)
	if err != nil {
		return nil, err
	}
	return &program{machine: run.NewMachine(compiled, e.cfg.Limits)}, nil
}

// keep stores a program, dropping others when there are too many. The caller holds the lock.
func (g *graphs) keep(key ownedRef, p *program) *program {
	if shared := g.programs[key.ref]; shared != nil {
		p = shared
	}
	for old := range g.owned {
		if len(g.owned) < maxPrograms {
			break
		}
		delete(g.owned, old)
		delete(g.programs, old.ref)
	}
	g.programs[key.ref] = p
	g.owned[key] = p
	return p
}
