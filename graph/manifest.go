package graph

import (
	"errors"
	"fmt"
	"strconv"

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

// manifestError is what is wrong with a manifest; its diagnostics are unwrapped.
type manifestError struct{ found Diagnostics }

func (e *manifestError) Error() string {
	return ErrManifest.Error() + ": it has " + e.found.summary("the manifest")
}

func (e *manifestError) Is(target error) bool { return target == ErrManifest }

func (e *manifestError) Unwrap() error { return e.found }

// ParseManifest reads a manifest written by node.Registry.Manifest. Errors wrap
// ErrManifest; unknown members, and node types that contradict themselves, are
// Diagnostics as well, all at once.
func ParseManifest(raw []byte) (*Manifest, error) {
	tree, wrong := parseTree(raw)
	var p parser
	if wrong != nil {
		p.add(*wrong)
		return nil, &manifestError{p.sorted()}
	}
	var m Manifest
	format := &element{kind: 'n', raw: []byte("none")}
	if stated := tree.member("format"); stated != nil {
		format = stated
	}
	if string(format.raw) != strconv.Itoa(ManifestFormat) {
		return nil, fmt.Errorf("%w: its format is %s and this build reads %d: read it with the release that wrote it", ErrManifest, shorten(string(format.raw)), ManifestFormat)
	}
	repeated(tree, "", p.add)
	p.object(tree, "", "A manifest", map[string]reading{
		"format": p.count(&m.Format),
		"nodes": func(e *element, path string) {
			p.items(e, path, func(e *element, path string) {
				var t NodeType
				p.nodeType(e, path, &t)
				m.Nodes = append(m.Nodes, t)
			})
		},
	})
	if p.failed() {
		return nil, &manifestError{p.sorted()}
	}
	type key struct {
		name    string
		version int
	}
	seen := map[key]bool{}
	for i := range m.Nodes {
		t, path := &m.Nodes[i], atIndex("/nodes", i)
		p.checkNodeType(t, path)
		k := key{t.Name, t.Version}
		if seen[k] {
			p.report(codeInvalidNodeType, path, "%q is listed twice in version %d: list it once.", shorten(t.Name), t.Version)
		}
		seen[k] = true
	}
	if p.failed() {
		return nil, &manifestError{p.sorted()}
	}
	return &m, nil
}

func (p *parser) items(e *element, path string, read reading) {
	if p.kind(e, path, '[', "This must be a list") {
		for i, item := range e.items {
			read(item, atIndex(path, i))
		}
	}
}

func (p *parser) nodeType(e *element, path string, t *NodeType) {
	ports := func(into *map[string]Port) reading {
		return func(e *element, path string) {
			p.named(e, path, "This", func(name string, e *element, path string) {
				var port Port
				p.object(e, path, "A port", map[string]reading{"schema": p.value(&port.Schema), "required": p.flag(&port.Required)})
				set(into, name, port)
			})
		}
	}
	p.object(e, path, "A node type", map[string]reading{
		"name": p.text(&t.Name), "version": p.count(&t.Version), "config": p.value(&t.Config),
		"accepts": func(e *element, path string) {
			p.items(e, path, func(e *element, path string) {
				var version int
				p.count(&version)(e, path)
				t.Accepts = append(t.Accepts, version)
			})
		},
		"reads": ports(&t.Reads), "writes": ports(&t.Writes),
		"open_reads": p.flag(&t.OpenReads), "open_writes": p.flag(&t.OpenWrites), "max_timeout": p.duration(&t.MaxTimeout),
	})
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
	if m == nil {
		return best, false
	}
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
