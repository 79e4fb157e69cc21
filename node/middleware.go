package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Middleware wraps the function of a node, for what concerns every attempt of every node: who may
// run it, how long it took, how often it may. It is called once for each node of a graph, and what it
// returns runs every attempt of that node: what a Middleware keeps between its own body and the
// function it returns is kept for one node of one graph, and what lies outside of it for all.
//
// The function it returns is a Func like any other: it may refuse the attempt by an error without
// calling next, hand next a context derived from its own, and change what next answered.
// A panic in it is a failure of the attempt. It must call next at most once, and on the same
// goroutine if the node's panics are to be recovered; Call must not be modified.
type Middleware func(next Func) Func

var (
	errNoMiddleware = errors.New("belay: a middleware is nil: leave it out")
	errNoFunc       = errors.New("belay: a middleware returned no function: return next when there is nothing to wrap")
)

// Chain is one middleware made of several, the first outermost: it sees an attempt first and its
// answer last. A nil one among them fails every attempt.
func Chain(middleware ...Middleware) Middleware {
	chain := slices.Clone(middleware)
	return func(next Func) Func {
		for _, m := range slices.Backward(chain) {
			next = m.wrap(next)
		}
		return next
	}
}

// wrap calls the middleware. What goes wrong with that is a failure of every attempt, since
// there is no attempt yet.
func (m Middleware) wrap(next Func) (wrapped Func) {
	defer func() {
		if p := recover(); p != nil {
			crash := fmt.Sprintf("belay: a middleware panicked as it wrapped the node: %s", panicText(p))
			wrapped = failing(&codedError{code: run.CodePanic, err: errors.New(crash)})
		}
	}()
	if m == nil {
		return failing(Permanent(errNoMiddleware))
	}
	if wrapped = m(next); wrapped == nil {
		return failing(Permanent(errNoFunc))
	}
	return wrapped
}

func failing(err error) Func {
	return func(context.Context, *Call) (map[string]value.Value, error) { return nil, err }
}

// Wrap is the same nodes with middleware around each, the first outermost.
func (p *Prepared) Wrap(middleware ...Middleware) *Prepared {
	if len(middleware) == 0 {
		return p
	}
	around := Chain(middleware...)
	wrapped := &Prepared{graph: p.graph, nodes: make(map[string]bound, len(p.nodes))}
	for id, b := range p.nodes {
		wrapped.nodes[id] = bound{fn: around(b.fn)} // what it returns may be a middleware's, so it is canonicalized
	}
	return wrapped
}

// Outcome is what an attempt comes to whose function returned err, its context still going on: that
// of a nil error is run.ResultCompleted. Middleware tells answers from failures by it.
func Outcome(err error) run.ResultKind {
	if err == nil {
		return run.ResultCompleted
	}
	o := outcome{err: err, marks: readMarks(err)}
	return o.answer("").Kind()
}
