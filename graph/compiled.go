package graph

import (
	"time"

	"github.com/belay-run/belay/value"
)

// Compiled is a graph ready to run. It is immutable and safe for concurrent use.
// The slices its methods hand out are shared: they are read-only.
type Compiled struct {
	ref      Ref
	bytes    value.Value
	document *Document
	warnings Diagnostics

	inputs, fields []*Channel
	nodes          []*CompiledNode
	edges          []*CompiledEdge
	outputs        []CompiledOutput

	channels map[string]*Channel
	nodeByID map[string]*CompiledNode
	from     map[string][]*CompiledEdge
}

// Ref names this version of the graph.
func (c *Compiled) Ref() Ref { return c.ref }

// Bytes are the canonical bytes of the published document; their SHA-256 is Ref().Hash.
func (c *Compiled) Bytes() value.Value { return c.bytes }

// Document is a copy of the published document.
func (c *Compiled) Document() *Document { return c.document.clone() }

// Warnings are the diagnostics that did not stop publication. Load looks for none.
func (c *Compiled) Warnings() Diagnostics { return c.warnings }

// Inputs are sorted by name.
func (c *Compiled) Inputs() []*Channel { return c.inputs }

// Fields are sorted by name.
func (c *Compiled) Fields() []*Channel { return c.fields }

// Nodes are sorted by id.
func (c *Compiled) Nodes() []*CompiledNode { return c.nodes }

// Edges are sorted by id.
func (c *Compiled) Edges() []*CompiledEdge { return c.edges }

// Outputs are sorted by name.
func (c *Compiled) Outputs() []CompiledOutput { return c.outputs }

// MaxSupersteps bounds a run; 0 is unbounded.
func (c *Compiled) MaxSupersteps() int64 { return c.document.Policies.MaxSupersteps }

// Channel is the state name, nil when undeclared.
func (c *Compiled) Channel(name string) *Channel { return c.channels[name] }

// Node is nil when there is none of that id.
func (c *Compiled) Node(id string) *CompiledNode { return c.nodeByID[id] }

// EdgesFrom lists the edges that list from ("$start" too) among their sources, by id.
func (c *Compiled) EdgesFrom(from string) []*CompiledEdge { return c.from[from] }

// CompiledNode is one node with everything resolved.
type CompiledNode struct {
	ID      string
	Use     string
	Version int
	Config  value.Value   // nil when the type takes none
	Reads   []Binding     // by node name
	Writes  []Binding     // by node name
	Timeout time.Duration // 0: none
	Retry   Retry         // MaxAttempts >= 1, the backoff complete
}

// Binding ties a node's own name to a state name.
type Binding struct{ Name, State string }

// CompiledEdge is one edge with its guard compiled.
type CompiledEdge struct {
	ID    string
	From  []string // sorted; more than one is a barrier
	To    string
	guard *Expression
}

// Barrier reports whether the edge collects several sources.
func (e *CompiledEdge) Barrier() bool { return len(e.From) > 1 }

// Guarded reports whether the edge has a guard.
func (e *CompiledEdge) Guarded() bool { return e.guard != nil }

// Eval evaluates the guard; an edge without one is true. A guard that fails (a
// comparison with a field that was never written, an index out of range, its budget
// used up) answers *ExpressionError, which is permanent.
func (e *CompiledEdge) Eval(s State) (bool, error) {
	if e.guard == nil {
		return true, nil
	}
	return e.guard.guard(s)
}

// State is what a guard sees.
type State interface {
	// Value is nil for a field that was never written and has no default.
	Value(name string) value.Value
	// Changed reports whether the name was written since the guards were last evaluated.
	Changed(name string) bool
	// Version counts the commits that wrote the name.
	Version(name string) int64
}

// CompiledOutput copies a state name into the output.
type CompiledOutput struct{ Name, From string }
