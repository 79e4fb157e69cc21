package graph

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/belay-run/belay/value"
)

// ManifestFormat is the format this package reads and node.Registry.Manifest writes.
const ManifestFormat = 1

// Manifest is a catalog as data: what one binary can run.
type Manifest struct {
	Format int        `json:"format"`
	Nodes  []NodeType `json:"nodes"`
}

// ErrManifest is wrapped when a manifest cannot be read.
var ErrManifest = errors.New("belay: invalid manifest")

// ParseManifest reads a manifest written by node.Registry.Manifest. Unknown members
// and other formats are refused: they wrap ErrManifest. Node types that contradict
// themselves are reported as Diagnostics, all at once, which are wrapped too.
func ParseManifest(raw []byte) (*Manifest, error) {
	var m Manifest
	if err := jsonv2.Unmarshal(raw, &m, jsonv2.RejectUnknownMembers(true)); err != nil {
		var head struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(raw, &head) == nil && head.Format > ManifestFormat {
			return nil, m.newer(head.Format)
		}
		return nil, fmt.Errorf("%w: %w: write it with the program whose nodes it describes", ErrManifest, err)
	}
	if m.Format != ManifestFormat {
		return nil, m.newer(m.Format)
	}
	var r reporter
	type key struct {
		name    string
		version int
	}
	seen := map[key]bool{}
	for i := range m.Nodes {
		t, path := &m.Nodes[i], atIndex("/nodes", i)
		r.checkNodeType(t, path)
		k := key{t.Name, t.Version}
		if seen[k] {
			r.report(codeInvalidNodeType, path, "%q is listed twice in version %d: list it once.", shorten(t.Name), t.Version)
		}
		seen[k] = true
	}
	if r.failed() {
		return nil, fmt.Errorf("%w: %w", ErrManifest, r.sorted())
	}
	return &m, nil
}

func (m *Manifest) newer(format int) error {
	return fmt.Errorf("%w: its format is %d and this build reads %d: use the build that wrote it", ErrManifest, format, ManifestFormat)
}

// Valid reports what a node type contradicts itself in, as Diagnostics: nil when it
// can be used. Paths are relative to the node type.
func (t NodeType) Valid() error {
	var r reporter
	r.checkNodeType(&t, "")
	if r.failed() {
		return r.sorted()
	}
	return nil
}

func (r *reporter) checkNodeType(t *NodeType, path string) {
	wrong := func(path, format string, args ...any) { r.report(codeInvalidNodeType, path, format, args...) }
	if !pattern.MatchString(t.Name) {
		wrong(at(path, "name"), "%q is not a valid name of a node type: use letters, digits, _ and -, beginning with a letter or digit, at most 128.", shorten(t.Name))
	}
	if t.Version < 1 {
		wrong(at(path, "version"), "The version is %d: use at least 1.", t.Version)
	}
	for i, accepted := range t.Accepts {
		if accepted < 1 || accepted >= t.Version {
			wrong(atIndex(at(path, "accepts"), i), "Version %d is accepted: accept versions older than %d.", accepted, t.Version)
		}
	}
	if t.MaxTimeout < 0 {
		wrong(at(path, "max_timeout"), "The maximum timeout is negative: use a positive one, or none.")
	}
	schema := func(path string, v *value.Value) {
		if *v == nil {
			return
		}
		canonical, err := value.Canonical(*v)
		if err == nil {
			_, err = value.CompileSchema(canonical, nil)
		}
		if err != nil {
			r.fromValue(codeInvalidNodeType, path, err)
			return
		}
		*v = canonical
	}
	schema(at(path, "config"), &t.Config)
	for _, side := range []struct {
		name  string
		ports map[string]Port
	}{{"reads", t.Reads}, {"writes", t.Writes}} {
		for _, name := range sortedKeys(side.ports) {
			where, port := at(at(path, side.name), name), side.ports[name]
			if !pattern.MatchString(name) {
				wrong(where, "%q is not a valid name: use letters, digits, _ and -, beginning with a letter or digit, at most 128.", shorten(name))
			}
			schema(at(where, "schema"), &port.Schema)
			side.ports[name] = port
		}
	}
}

// NodeType implements Catalog.
func (m *Manifest) NodeType(name string, version int) (NodeType, bool) {
	var best NodeType
	found := false
	for _, t := range m.Nodes {
		if t.Name != name {
			continue
		}
		if t.Version == version {
			return t, true
		}
		if (version == 0 || t.accepts(version)) && t.Version > best.Version {
			best, found = t, true
		}
	}
	return best, found
}

func (t NodeType) accepts(version int) bool {
	for _, accepted := range t.Accepts {
		if accepted == version {
			return true
		}
	}
	return false
}
