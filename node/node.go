// Package node is the contract between belay and the code that does the work.
//
// A node type has a name, a contract version, a schema for its config, and names it
// reads from and writes to a run's state. Of and Configured make one from a Go
// function, with everything else inferred from its types; Raw makes one by hand. A
// Registry holds the types that a binary can run: it is what graphs are published
// against, it says as data what this binary can do (Manifest), and it binds a compiled
// graph to the code that runs it (Prepare).
//
// A node's function answers with an update or with an error. Any error is a failure
// that may be retried, unless it is, or wraps, one of this package's answers: Ask opens
// an interrupt, Snooze parks the task, Skip completes without an update, Permanent
// fails the run, RetryAfter says when to try again at the earliest.
//
// A function may run more than once for the same task: after a retryable failure, and
// after a crash between its effect and the commit that records it. IdempotencyKey is
// the same every time; pass it on to whatever must not happen twice.
package node

import (
	"context"

	"github.com/belay-run/belay/value"
)

// Func runs one attempt of a prepared node. It returns the update by the node's own
// write names (an empty or nil one writes nothing), or an error. The update that comes
// with an error is ignored.
//
// Func is called on a goroutine of its own, and concurrently for different runs. ctx
// ends at the attempt's deadline, and when its result can no longer count: the cause
// (context.Cause) says why. A Func that ignores ctx holds its run up. What call holds
// is shared: it may be read and must not be modified.
type Func func(ctx context.Context, call *Call) (map[string]value.Value, error)

// Site is one node of one graph, as its type is prepared to run there.
type Site struct {
	// Node is the node's id in its graph.
	Node string
	// Config is valid under the contract's schema and check; nil when the type takes none.
	Config value.Value
	// Reads and Writes are the node's own names that the graph binds, sorted.
	Reads, Writes []string
}
