package graph

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/value"
)

// What a retry policy leaves out.
const (
	defaultInitial = Duration(time.Second)
	defaultFactor  = Thousandths(2000)
	defaultCap     = Duration(time.Hour)
)

// compiler checks a document and builds what runs of it.
type compiler struct {
	reporter
	doc *Document
	out *Compiled
	// mentioned are state names in use beside what is bound: those that guards name.
	mentioned map[string]bool
	// opaque: what some node or guard reads is not known, as its type is not, or as it
	// does not compile.
	opaque bool
	// schemas are those compiled so far, by text: graphs repeat simple ones.
	schemas map[string]*value.Schema
}

func newCompiler(doc *Document) *compiler {
	return &compiler{
		doc: doc, mentioned: map[string]bool{}, schemas: map[string]*value.Schema{},
		out: &Compiled{
			document: doc, channels: map[string]*Channel{},
			nodeByID: make(map[string]*CompiledNode, len(doc.Nodes)), from: map[string][]*CompiledEdge{},
		},
	}
}

var pattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (c *compiler) checkID(id, path, what string) {
	if !pattern.MatchString(id) {
		c.report(codeInvalidID, path, "%q is not a valid %s: use letters, digits, _ and -, beginning with a letter or digit, at most 128.", shorten(id), what)
	}
}

func (c *compiler) compile() *Compiled {
	if c.doc.ID == "" {
		c.report(codeMissingMember, "/id", "The graph has no id: give it one.")
	} else {
		c.checkID(c.doc.ID, "/id", "graph id")
	}
	c.compileState()
	for _, id := range sortedKeys(c.doc.Nodes) {
		c.compileNode(id, c.doc.Nodes[id])
	}
	for _, id := range sortedKeys(c.doc.Edges) {
		c.compileEdge(id, c.doc.Edges[id])
	}
	for _, name := range sortedKeys(c.doc.Outputs) {
		path := at("/outputs", name)
		c.checkID(name, path, "output name")
		from := c.doc.Outputs[name].From
		switch {
		case from == "":
			c.report(codeMissingMember, at(path, "from"), "The output has no source: name an input or field.")
		case c.out.channels[from] == nil:
			c.report(codeUnknownOutputSource, at(path, "from"), "%q is neither an input nor a field: declare it, or name one of %s.", shorten(from), list(sortedKeys(c.out.channels)))
		}
		c.out.outputs = append(c.out.outputs, CompiledOutput{Name: name, From: from})
	}
	if c.doc.Policies.MaxSupersteps < 0 {
		c.report(codeInvalidPolicy, "/policies/max_supersteps", "max_supersteps is %d: use a positive number, or leave it out for no bound.", c.doc.Policies.MaxSupersteps)
	}
	c.checkReach()
	return c.out
}

func (c *compiler) compileState() {
	for _, name := range sortedKeys(c.doc.Defs) {
		c.checkID(name, at("/$defs", name), "name of a shared schema")
		if _, err := value.CompileSchema(c.doc.Defs[name], c.doc.Defs); err != nil {
			c.schemaError(at("/$defs", name), c.doc.Defs[name], err)
		}
	}
	for _, name := range sortedKeys(c.doc.Inputs) {
		path, in := at("/inputs", name), c.doc.Inputs[name]
		ch := &Channel{Name: name, Input: true, Required: in.Required}
		c.checkID(name, path, "input name")
		if _, twice := c.doc.Fields[name]; twice {
			c.report(codeDuplicateName, path, "%q is both an input and a field: rename one of them.", name)
		}
		c.compileChannel(ch, path, in.Schema, in.Default)
		c.out.inputs = append(c.out.inputs, ch)
	}
	for _, name := range sortedKeys(c.doc.Fields) {
		path, field := at("/fields", name), c.doc.Fields[name]
		ch := &Channel{Name: name, Reducer: field.Reducer}
		if ch.Reducer.Name == "" {
			ch.Reducer.Name = reduceReplace
		}
		c.checkID(name, path, "field name")
		c.compileChannel(ch, path, field.Schema, field.Default)
		c.checkReducer(at(path, "reducer"), field.Reducer, ch.Schema)
		c.out.fields = append(c.out.fields, ch)
	}
}

func (c *compiler) compileChannel(ch *Channel, path string, schema, fallback value.Value) {
	c.out.channels[ch.Name] = ch
	if schema == nil {
		c.report(codeMissingSchema, at(path, "schema"), "%q has no schema: add one, {} admits any value.", ch.Name)
	} else {
		ch.Schema = c.compileSchema(at(path, "schema"), schema)
	}
	if fallback == nil {
		return
	}
	v, err := value.Parse(fallback)
	if err == nil && ch.Schema != nil {
		err = ch.Schema.Validate(v)
	}
	if err != nil {
		c.fromValue(codeInvalidDefault, at(path, "default"), err)
	}
	ch.Default = v
}

// compileSchema is nil when the schema is invalid, which it reports.
func (c *compiler) compileSchema(path string, schema value.Value) *value.Schema {
	if compiled := c.schemas[string(schema)]; compiled != nil {
		return compiled
	}
	compiled, err := value.CompileSchema(schema, c.doc.Defs)
	if err != nil {
		c.schemaError(path, schema, err)
		return nil
	}
	c.schemas[string(schema)] = compiled
	return compiled
}

// schemaError reports what is wrong with a schema where it stands: in the schema or
// in a shared one.
func (c *compiler) schemaError(path string, schema value.Value, err error) {
	var bad *value.Error
	if errors.As(err, &bad) && strings.HasPrefix(bad.Path, "/$defs/") && decodeObject(schema)["$defs"] == nil {
		path = ""
	}
	c.fromValue(codeInvalidSchema, path, err)
}

func (c *compiler) compileNode(id string, n Node) {
	path := at("/nodes", id)
	c.checkID(id, path, "node id")
	out := &CompiledNode{
		ID: id, Use: n.Use, Version: n.Version, Config: n.Config, Timeout: time.Duration(n.Timeout),
		Reads: bindings(n.Reads), Writes: bindings(n.Writes),
	}
	if n.Use == "" {
		c.report(codeMissingMember, at(path, "use"), "The node has no type: name one under use.")
	}
	if n.Version < 0 {
		c.report(codeInvalidValue, at(path, "version"), "The contract version is %d: use a positive one, or leave it out.", n.Version)
	}
	for _, b := range out.Reads {
		if c.out.channels[b.State] == nil {
			c.report(codeUndeclaredRead, at(at(path, "reads"), b.Name), "%q is neither an input nor a field: declare it, or read one of %s.", shorten(b.State), list(sortedKeys(c.out.channels)))
		}
	}
	written := map[string]string{}
	for _, b := range out.Writes {
		where := at(at(path, "writes"), b.Name)
		switch ch := c.out.channels[b.State]; {
		case ch == nil:
			c.report(codeUndeclaredWrite, where, "%q is not a field: declare it under fields, or write one of %s.", shorten(b.State), list(sortedKeys(c.doc.Fields)))
		case ch.Input:
			c.report(codeWritesInput, where, "%q is an input, which only the start of a run writes: write a field.", b.State)
		}
		if other, twice := written[b.State]; twice {
			c.report(codeRepeatedWrite, where, "%q and %q are both bound to %q: bind them to different fields.", other, b.Name, shorten(b.State))
		}
		written[b.State] = b.Name
	}
	if n.Timeout < 0 || time.Duration(n.Timeout)%time.Microsecond != 0 {
		c.report(codeInvalidValue, at(path, "timeout"), "The timeout %v is not a positive number of microseconds: correct it.", time.Duration(n.Timeout))
	}
	out.Retry = c.compileRetry(at(path, "retry"), n.Retry)
	c.out.nodes = append(c.out.nodes, out)
	c.out.nodeByID[id] = out
}

func bindings(m map[string]string) []Binding {
	if len(m) == 0 {
		return nil
	}
	out := make([]Binding, 0, len(m))
	for name, state := range m {
		out = append(out, Binding{name, state})
	}
	slices.SortFunc(out, func(a, b Binding) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (c *compiler) compileRetry(path string, policy *Retry) Retry {
	r := Retry{MaxAttempts: 1}
	if policy != nil {
		r = *policy
		if r.MaxAttempts < 1 {
			c.report(codeInvalidRetry, at(path, "max_attempts"), "max_attempts is %d: use at least 1.", r.MaxAttempts)
		}
	}
	b, path := &r.Backoff, at(path, "backoff")
	for _, d := range []struct {
		name string
		of   *Duration
		or   Duration
	}{{"initial", &b.Initial, defaultInitial}, {"cap", &b.Cap, defaultCap}} {
		if *d.of < 0 || time.Duration(*d.of)%time.Microsecond != 0 {
			c.report(codeInvalidRetry, at(path, d.name), "%v is not a positive number of microseconds: correct it.", time.Duration(*d.of))
		}
		if *d.of == 0 {
			*d.of = d.or
		}
	}
	if b.Factor == 0 {
		b.Factor = defaultFactor
	}
	if b.Factor < 1000 {
		c.report(codeInvalidRetry, at(path, "factor"), "The factor is %v: use at least 1.", b.Factor)
	}
	if b.Cap < b.Initial {
		c.report(codeInvalidRetry, at(path, "cap"), "The cap %v is below the initial delay %v: raise it.", b.Cap, b.Initial)
	}
	return r
}

func (c *compiler) compileEdge(id string, g Edge) {
	path := at("/edges", id)
	c.checkID(id, path, "edge id")
	out := &CompiledEdge{ID: id, From: slices.Sorted(slices.Values(g.From)), To: g.To}
	from := at(path, "from")
	if len(g.From) == 0 {
		c.report(codeEmptySources, from, "The edge has no source: name %s, a node, or the nodes of a barrier.", Start)
	}
	seen := map[string]bool{}
	for i, source := range g.From {
		where := from
		if len(g.From) > 1 {
			where = atIndex(from, i)
		}
		_, known := c.doc.Nodes[source]
		switch {
		case seen[source]:
			c.report(codeDuplicateSource, where, "%q is listed twice: list it once.", shorten(source))
		case source == Start && len(g.From) > 1:
			c.report(codeStartInBarrier, where, "%s cannot be in a barrier: use an edge of its own.", Start)
		case source != Start && !known:
			c.report(codeUnknownEdgeSource, where, "%q is not a node: name a node or %s.", shorten(source), Start)
		}
		seen[source] = true
	}
	_, known := c.doc.Nodes[g.To]
	switch {
	case g.To == "":
		c.report(codeMissingMember, at(path, "to"), "The edge has no target: name a node or %s.", Finish)
	case g.To != Finish && !known:
		c.report(codeUnknownEdgeTarget, at(path, "to"), "%q is not a node: name a node or %s.", shorten(g.To), Finish)
	}
	if g.When != "" {
		out.guard = c.compileGuard(at(path, "when"), g.When)
	}
	c.out.edges = append(c.out.edges, out)
	for _, source := range slices.Compact(slices.Clone(out.From)) {
		c.out.from[source] = append(c.out.from[source], out)
	}
}

func (c *compiler) compileGuard(path, source string) *Expression {
	compilation := compilation{source: source, guard: true, channels: c.out.channels}
	e, wrongs := compilation.compile()
	for _, w := range wrongs {
		c.report(w.code, path, "The guard does not compile: %s.", w.reason)
	}
	for name := range compilation.mentioned {
		c.mentioned[name] = true
	}
	c.opaque = c.opaque || e == nil && len(compilation.mentioned) == 0
	return e
}

// checkEncodable refuses what a document built in Go may hold but JSON may not.
func (c *compiler) checkEncodable() {
	raw := func(path string, v *value.Value) {
		if *v == nil {
			return
		}
		canonical, err := value.Canonical(*v)
		if err != nil {
			c.fromValue(codeInvalidValue, path, err)
			*v = nil
			return
		}
		*v = canonical
	}
	text := func(path string, texts ...string) {
		if slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) }) {
			c.report(codeInvalidValue, path, "A text is not valid UTF-8: correct it.")
		}
	}
	for name, v := range c.doc.Defs {
		raw(at("/$defs", name), &v)
		c.doc.Defs[name] = v
	}
	for name, in := range c.doc.Inputs {
		raw(at(at("/inputs", name), "schema"), &in.Schema)
		raw(at(at("/inputs", name), "default"), &in.Default)
		c.doc.Inputs[name] = in
	}
	for name, f := range c.doc.Fields {
		raw(at(at("/fields", name), "schema"), &f.Schema)
		raw(at(at("/fields", name), "default"), &f.Default)
		text(at(at("/fields", name), "reducer"), f.Reducer.Name, f.Reducer.By)
		c.doc.Fields[name] = f
	}
	for id, n := range c.doc.Nodes {
		raw(at(at("/nodes", id), "config"), &n.Config)
		text(at("/nodes", id), n.Use)
		text(at("/nodes", id), slices.Collect(maps.Keys(n.Reads))...)
		text(at("/nodes", id), slices.Collect(maps.Keys(n.Writes))...)
		c.doc.Nodes[id] = n
	}
	for id, e := range c.doc.Edges {
		text(at("/edges", id), e.When)
	}
}

// decodeObject reads one level of a JSON object, nil when v is none.
func decodeObject(v value.Value) map[string]json.RawMessage {
	var object map[string]json.RawMessage
	if len(v) == 0 || v[0] != '{' || json.Unmarshal(v, &object) != nil {
		return nil
	}
	return object
}
