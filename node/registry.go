package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/belay-run/belay/graph"
)

// Registry is the set of node types a binary can run. It is a graph.Catalog. The zero
// Registry is empty and ready to use. Reading is safe for concurrent use; adding is not
// safe while anything else uses the registry.
type Registry struct {
	// types holds the versions of each name, newest first.
	types map[string][]Type
	errs  joined
}

var _ graph.Catalog = (*Registry)(nil)

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// Add adds types and returns the registry. Several versions of one name may be added. A
// bad type (no name, version < 1, a schema that cannot be inferred, a nil function, the
// same name and version twice) is left out and recorded: Err, and whoever is given the
// registry, report all of them.
func (r *Registry) Add(types ...Type) *Registry {
	for _, t := range types {
		if err := t.Err(); err != nil {
			if several, ok := err.(joined); ok {
				r.errs = append(r.errs, several...)
			} else {
				r.errs = append(r.errs, err)
			}
			continue
		}
		c := t.contract
		versions := r.types[c.Name]
		at, taken := slices.BinarySearchFunc(versions, c.Version, func(t Type, version int) int {
			return cmp.Compare(version, t.contract.Version)
		})
		if taken {
			r.errs = append(r.errs, &TypeError{Name: c.Name, Version: c.Version, Reason: "it is registered already: add it once, or give the changed contract a higher version"})
			continue
		}
		if r.types == nil {
			r.types = map[string][]Type{}
		}
		r.types[c.Name] = slices.Insert(versions, at, t)
	}
	return r
}

// Err is every error Add met, joined; nil when there was none. Each is a *TypeError.
func (r *Registry) Err() error { return slices.Clone(r.errs).err() }

// NodeType implements graph.Catalog: the newest version for version 0, else the type
// that is exactly that version, else the newest that accepts it.
func (r *Registry) NodeType(name string, version int) (graph.NodeType, bool) {
	t, ok := r.find(name, version)
	return t.contract, ok
}

func (r *Registry) find(name string, version int) (Type, bool) {
	versions := r.types[name]
	if len(versions) == 0 || version < 0 {
		return Type{}, false
	}
	if version == 0 {
		return versions[0], true
	}
	for _, runs := range []func(Type) bool{
		func(t Type) bool { return t.contract.Version == version },
		func(t Type) bool { return t.upgrades[version] != nil },
	} {
		if i := slices.IndexFunc(versions, runs); i >= 0 {
			return versions[i], true
		}
	}
	return Type{}, false
}

// Manifest is what this registry can run, as data, by name and version: graphs can be
// checked against it where the code is not. It encodes to the same bytes every time.
func (r *Registry) Manifest() *graph.Manifest {
	m := &graph.Manifest{Format: graph.ManifestFormat, Nodes: []graph.NodeType{}}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		for _, t := range slices.Backward(r.types[name]) {
			c := t.contract
			c.Check = nil
			m.Nodes = append(m.Nodes, c)
		}
	}
	return m
}
