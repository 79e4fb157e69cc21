package graph

import "github.com/belay-run/belay/value"

// Port is something a node type reads or writes.
type Port struct {
	Schema   value.Value `json:"schema,omitempty"` // nil: any value
	Required bool        `json:"required,omitempty"`
}

// NodeType is the contract of a node type: what a graph can be checked against
// without the code that runs it.
type NodeType struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Accepts lists older contract versions whose published configs this type
	// still runs; reads and writes are equal across them.
	Accepts []int `json:"accepts,omitempty"`
	// Config is the JSON Schema of the node's config; nil: no config is taken.
	Config value.Value     `json:"config,omitempty"`
	Reads  map[string]Port `json:"reads,omitempty"`
	Writes map[string]Port `json:"writes,omitempty"`
	// OpenReads and OpenWrites admit names beyond Reads and Writes: those that
	// a graph's node lists.
	OpenReads  bool `json:"open_reads,omitempty"`
	OpenWrites bool `json:"open_writes,omitempty"`
	// MaxTimeout bounds a node's timeout and is its default; 0: unbounded.
	MaxTimeout Duration `json:"max_timeout,omitempty"`
	// Check, when set, examines a config beyond its schema (an expression that
	// must compile, say). reads and writes are the node's own names that the graph
	// binds, sorted. Errors of package value, joined ones too, are reported with their
	// paths. It is not part of a manifest.
	Check func(config value.Value, reads, writes []string) error `json:"-"`
}

// Catalog knows node types. node.Registry and Manifest are catalogs. One with a method
// Manifest() *Manifest, as node.Registry has it, lets a misspelled name be answered with
// the one that was probably meant.
type Catalog interface {
	// NodeType answers the newest version of a type for version 0, else the
	// type that runs exactly that version or accepts it.
	NodeType(name string, version int) (NodeType, bool)
}
