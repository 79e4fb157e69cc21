package graph

import (
	"time"

	"github.com/belay-run/belay/value"
)

// Reserved edge ends.
const (
	Start  = "$start"
	Finish = "$finish"
)

// Document is a graph as people write it. JSON is its canonical form; YAML is
// accepted by ParseYAML.
type Document struct {
	ID       string                 `json:"id"`
	Defs     map[string]value.Value `json:"$defs,omitempty"`
	Inputs   map[string]Input       `json:"inputs,omitempty"`
	Fields   map[string]Field       `json:"fields,omitempty"`
	Nodes    map[string]Node        `json:"nodes,omitzero"`
	Edges    map[string]Edge        `json:"edges,omitzero"`
	Outputs  map[string]Output      `json:"outputs,omitempty"`
	Policies Policies               `json:"policies,omitzero"`
}

// Input is a state name that the start of a run writes, and nothing else.
type Input struct {
	Schema   value.Value `json:"schema,omitempty"`
	Required bool        `json:"required,omitempty"`
	// Default is nil when none is declared; null, false, 0 and "" are declared defaults.
	Default value.Value `json:"default,omitempty"`
}

// Field is a state name that nodes write.
type Field struct {
	Schema  value.Value `json:"schema,omitempty"`
	Default value.Value `json:"default,omitempty"`
	Reducer Reducer     `json:"reducer,omitzero"`
}

// Reducer says how the writes of one superstep are folded into a field's
// committed value. In a document it is a name, or an object {name, options}. The
// zero Reducer is replace.
type Reducer struct {
	Name   string `json:"name"`             // replace, first, append, union, merge, sum
	Unique bool   `json:"unique,omitempty"` // append: skip equal elements
	Max    int    `json:"max,omitempty"`    // append: keep the last Max elements; 0 is unbounded
	By     string `json:"by,omitempty"`     // union: the key of an element that identifies it
	Deep   bool   `json:"deep,omitempty"`   // merge: objects within objects too
}

// Node is one activation site of a node type.
type Node struct {
	Use     string      `json:"use"`
	Version int         `json:"version,omitempty"` // filled in at publication
	Config  value.Value `json:"config,omitempty"`
	// Reads and Writes map the node's own name to a state name.
	// Nil means what the node type declares, by name; an empty map binds nothing.
	Reads   map[string]string `json:"reads,omitzero"`
	Writes  map[string]string `json:"writes,omitzero"`
	Timeout Duration          `json:"timeout,omitempty"` // of one attempt; 0: the node type's maximum, or none
	Retry   *Retry            `json:"retry,omitempty"`
}

// Retry says how often an attempt that failed retryably is repeated.
type Retry struct {
	MaxAttempts int     `json:"max_attempts"`
	Backoff     Backoff `json:"backoff,omitzero"`
}

// Backoff is the delay before attempt n+1: min(Initial * Factor^(n-1), Cap).
type Backoff struct {
	Initial Duration `json:"initial,omitempty"` // defaults to 1s
	// Factor in thousandths, applied stepwise; in a document a number such as 1.5.
	// Defaults to 2000 (twice).
	Factor Thousandths `json:"factor,omitempty"`
	Cap    Duration    `json:"cap,omitempty"` // defaults to 1h
}

// Edge leads from one node (or $start), or from several (a barrier), to a node or $finish.
type Edge struct {
	From Sources `json:"from,omitzero"`
	To   string  `json:"to"`
	When string  `json:"when,omitempty"` // a guard; empty is always true
}

// Sources is one name, or the list of a barrier.
type Sources []string

// Output copies a state name into the run's output.
type Output struct {
	From string `json:"from"`
}

// Policies bound a run.
type Policies struct {
	// MaxSupersteps fails a run that needs more; 0 is unbounded.
	MaxSupersteps int64 `json:"max_supersteps,omitempty"`
}

// Duration is a time.Duration written as "30s" or "1m30s", in whole microseconds.
type Duration time.Duration

// Thousandths is a decimal factor with at most three places, kept as an integer.
type Thousandths int64

// Ref names one version of a graph.
type Ref struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}
