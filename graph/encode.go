package graph

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/belay-run/belay/value"
)

// IsZero reports whether the reducer is replace, which a document leaves out.
func (r Reducer) IsZero() bool { return r == Reducer{} || r == Reducer{Name: reduceReplace} }

// MarshalJSON writes the reducer as its name, or as an object when it has options.
func (r Reducer) MarshalJSON() ([]byte, error) {
	if r.Name == "" {
		r.Name = reduceReplace
	}
	if r == (Reducer{Name: r.Name}) {
		return json.Marshal(r.Name)
	}
	type plain Reducer
	return json.Marshal(plain(r))
}

// MarshalJSON writes one source as a string and a barrier as a list.
func (s Sources) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// canonical is the document's canonical bytes.
func (d *Document) canonical() (value.Value, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return value.Canonical(raw)
}

// clone copies everything that can be changed; raw values are immutable and shared.
func (d *Document) clone() *Document {
	c := *d
	c.Defs = maps.Clone(d.Defs)
	c.Inputs = maps.Clone(d.Inputs)
	c.Fields = maps.Clone(d.Fields)
	c.Outputs = maps.Clone(d.Outputs)
	c.Nodes = maps.Clone(d.Nodes)
	for id, n := range c.Nodes {
		n.Reads = maps.Clone(n.Reads)
		n.Writes = maps.Clone(n.Writes)
		if n.Retry != nil {
			retry := *n.Retry
			n.Retry = &retry
		}
		c.Nodes[id] = n
	}
	c.Edges = maps.Clone(d.Edges)
	for id, e := range c.Edges {
		e.From = slices.Clone(e.From)
		c.Edges[id] = e
	}
	return &c
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
