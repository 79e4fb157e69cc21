package graph

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/belay-run/belay/value"
)

// materialize writes into the document what the catalog says about its nodes, so
// that the published graph stands by itself. It answers the types found, by node.
func (c *compiler) materialize(catalog Catalog) map[string]NodeType {
	found := make(map[string]NodeType, len(c.doc.Nodes))
	for _, id := range sortedKeys(c.doc.Nodes) {
		n, path := c.doc.Nodes[id], at("/nodes", id)
		if n.Use == "" || n.Version < 0 {
			c.opaque = c.opaque || n.Reads == nil
			continue
		}
		t, ok := lookup(catalog, n.Use, n.Version)
		if !ok {
			c.opaque = c.opaque || n.Reads == nil
			if newest, has := lookup(catalog, n.Use, 0); has {
				c.report(codeUnsupportedVersion, at(path, "version"), "The catalog has %s in version %d, which does not accept version %d: name another, or leave it out.", n.Use, newest.Version, n.Version)
			} else {
				c.unknownNodeType(at(path, "use"), n.Use, catalog)
			}
			continue
		}
		found[id] = t
		if n.Version == 0 {
			n.Version = t.Version
		}
		n.Reads = c.materializePorts(n.Reads, t.Reads, false)
		n.Writes = c.materializePorts(n.Writes, t.Writes, true)
		c.materializeConfig(path, &n, t)
		if n.Timeout == 0 {
			n.Timeout = t.MaxTimeout
		}
		c.doc.Nodes[id] = n
	}
	return found
}

func (c *compiler) unknownNodeType(path, use string, catalog Catalog) {
	if near := c.nearest(use, catalog); near != "" {
		c.report(codeUnknownNodeType, path, "The catalog has no node type %q: did you mean %s? Correct the name, or register the type.", shorten(use), near)
		return
	}
	c.report(codeUnknownNodeType, path, "The catalog has no node type %q: register it, or correct the name.", shorten(use))
}

func lookup(catalog Catalog, name string, version int) (NodeType, bool) {
	if catalog == nil {
		return NodeType{}, false
	}
	return catalog.NodeType(name, version)
}

func (c *compiler) materializeConfig(path string, n *Node, t NodeType) {
	where := at(path, "config")
	if n.Version != t.Version {
		c.report(codeUncheckedConfig, where, "Version %d of %s runs as %d here: the config is checked when the node is prepared.", n.Version, n.Use, t.Version)
		return
	}
	if t.Config == nil {
		if n.Config != nil {
			c.report(codeUnexpectedConfig, where, "The node type %s takes no config: remove it.", n.Use)
		}
		return
	}
	schema, err := value.CompileSchema(t.Config, nil)
	if err != nil {
		c.report(codeInvalidNodeType, where, "The config schema of the node type %s is invalid: %v.", n.Use, err)
		return
	}
	config := n.Config
	if config == nil {
		config = value.Value("{}")
	}
	if config, err = value.Canonical(withDefaults(config, t.Config)); err != nil {
		c.fromValue(codeInvalidConfig, where, err)
		return
	}
	if misfits := schema.Misfits(config); len(misfits) > 0 {
		for _, m := range misfits {
			c.fromValue(codeInvalidConfig, where, m)
		}
		return
	}
	n.Config = config
	if t.Check != nil {
		if err := t.Check(config, sortedKeys(n.Reads), sortedKeys(n.Writes)); err != nil {
			c.fromValue(codeInvalidConfig, where, err)
		}
	}
}

// materializePorts binds by name what the type declares, where the graph's node
// says nothing. Only names the state declares are bound; a type with open ports has
// the rest listed by the node.
func (c *compiler) materializePorts(bound map[string]string, ports map[string]Port, write bool) map[string]string {
	if bound != nil {
		return bound
	}
	bound = map[string]string{}
	for name := range ports {
		_, field := c.doc.Fields[name]
		_, input := c.doc.Inputs[name]
		if field || input && !write {
			bound[name] = name
		}
	}
	return bound
}

// checkPorts holds the nodes' bindings against their types.
func (c *compiler) checkPorts(types map[string]NodeType) {
	for _, id := range sortedKeys(types) {
		n, t, path := c.doc.Nodes[id], types[id], at("/nodes", id)
		c.checkBindings(at(path, "reads"), n.Reads, t.Reads, t.OpenReads, false)
		c.checkBindings(at(path, "writes"), n.Writes, t.Writes, t.OpenWrites, true)
		for _, name := range sortedKeys(t.Reads) {
			if _, ok := n.Reads[name]; !ok && t.Reads[name].Required {
				c.missingRead(at(at(path, "reads"), name), n.Use, name)
			}
		}
		if t.MaxTimeout > 0 && n.Timeout > t.MaxTimeout {
			c.report(codeTimeoutAboveMaximum, at(path, "timeout"), "The timeout %v is above the maximum of %s, %v: lower it.", n.Timeout, n.Use, t.MaxTimeout)
		}
	}
}

func (c *compiler) missingRead(path, use, name string) {
	for _, state := range sortedKeys(c.out.channels) {
		if state != name && strings.EqualFold(state, name) {
			c.mentioned[state] = true // it is used once this is corrected
			c.report(codeMissingRequiredRead, path, "%s requires %q: did you mean %s? Add a json tag to the Go field, or bind %s to %s under reads.", use, name, state, name, state)
			return
		}
	}
	c.report(codeMissingRequiredRead, path, "%s requires %q: declare it as an input or field, or bind it to another name under reads.", use, name)
}

func (c *compiler) checkBindings(path string, bound map[string]string, ports map[string]Port, open, write bool) {
	for _, name := range sortedKeys(bound) {
		where := at(path, name)
		port, known := ports[name]
		if !known && !open {
			c.report(codeUnknownPort, where, "The node type has nothing called %q here: use %s.", shorten(name), list(sortedKeys(ports)))
			continue
		}
		if !known {
			c.checkID(name, where, "name")
			continue
		}
		ch := c.out.channels[bound[name]]
		if port.Schema == nil || ch == nil || ch.Schema == nil {
			continue
		}
		schema, err := value.CompileSchema(port.Schema, nil)
		if err != nil {
			c.report(codeInvalidNodeType, where, "The node type's schema of %q is invalid: %v.", name, err)
			continue
		}
		whole := !write || ch.Reducer.name() == reduceReplace || ch.Reducer.name() == reduceFirst
		if whole && !share(schema.Types(), ch.Schema.Types()) {
			c.report(codePortMismatch, where, "The node type's %q is %s, but the %s %q is %s: bind another name or change the schema.", name, list(schema.Types()), ch.kind(), ch.Name, list(ch.Schema.Types()))
		}
	}
}

// share reports whether two lists of JSON types have a type in common; an empty
// list is every type.
func share(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	has := func(types []string, t string) bool {
		return slices.Contains(types, t) || t == "integer" && slices.Contains(types, "number") || t == "number" && slices.Contains(types, "integer")
	}
	return slices.ContainsFunc(a, func(t string) bool { return has(b, t) })
}

// withDefaults adds the defaults that a schema declares for members that a config
// leaves out, in objects within it and in the elements of lists too.
func withDefaults(config, schema value.Value) value.Value {
	m := materializer{root: schema}
	return m.fill(config, schema, 0)
}

type materializer struct{ root value.Value }

func (m materializer) fill(v, schema value.Value, depth int) value.Value {
	rules := decodeObject(schema)
	if rules == nil || depth > 100 {
		return v
	}
	if ref, ok := rules["$ref"]; ok {
		v = m.fill(v, m.resolve(ref), depth+1)
	}
	var all []json.RawMessage
	if json.Unmarshal(rules["allOf"], &all) == nil {
		for _, one := range all {
			v = m.fill(v, one, depth+1)
		}
	}
	if object := decodeObject(v); object != nil {
		properties := decodeObject(rules["properties"])
		for name, property := range properties {
			if old, ok := object[name]; ok {
				object[name] = m.fill(old, property, depth+1)
			} else if fallback := m.fallback(property, depth); fallback != nil {
				object[name] = m.fill(fallback, property, depth+1)
			}
		}
		return joinObject(object)
	}
	if items, ok := rules["items"]; ok && len(v) > 0 && v[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(v, &list) == nil {
			for i := range list {
				list[i] = m.fill(list[i], items, depth+1)
			}
			return joinList(list)
		}
	}
	return v
}

// fallback is the default of a property, its own or that of what it refers to.
func (m materializer) fallback(property value.Value, depth int) value.Value {
	rules := decodeObject(property)
	if fallback, ok := rules["default"]; ok {
		return fallback
	}
	if ref, ok := rules["$ref"]; ok && depth < 100 {
		return m.fallback(m.resolve(ref), depth+1)
	}
	return nil
}

// resolve follows a reference within the schema, nil when there is nothing there.
func (m materializer) resolve(ref json.RawMessage) value.Value {
	var text string
	if json.Unmarshal(ref, &text) != nil {
		return nil
	}
	pointer, local := strings.CutPrefix(text, "#")
	if !local {
		return nil
	}
	at := m.root
	if pointer == "" {
		return at
	}
	pointer, slash := strings.CutPrefix(pointer, "/")
	if !slash {
		return nil
	}
	for step := range strings.SplitSeq(pointer, "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		at = decodeObject(at)[step]
	}
	return at
}
