package graph

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/value"
)

const order = `
id: order
$defs: {money: {type: integer, minimum: 0}}
inputs:
  amount: {schema: {$ref: "#/$defs/money"}, required: true}
  note: {schema: {type: string}, default: ""}
fields:
  receipt: {schema: {type: string}}
  log: {schema: {type: array, items: {type: string}}, reducer: {name: append, max: 100}}
  total: {schema: {type: integer}, default: 0, reducer: sum}
  seen: {schema: {type: [boolean, "null"]}, default: null, reducer: replace}
nodes:
  charge:
    use: charge
    config: {fees: [{of: bank}, {of: shop, percent: 2.50}]}
    retry: {max_attempts: 3, backoff: {initial: 90s, factor: 1.50, cap: 2h}}
  tally: {use: set, reads: {amount: amount}, writes: {total: total, seen: seen}}
  mail: {use: noop, timeout: 1500ms}
edges:
  start: {from: $start, to: charge, when: "state.amount > 0"}
  tally: {from: [$start], to: tally}
  both: {from: [tally, charge], to: mail}
  end: {from: mail, to: $finish}
outputs: {total: {from: total}, receipt: {from: receipt}, log: {from: log}, seen: {from: seen}, note: {from: note}}
policies: {max_supersteps: 10}
`

func publish(t testing.TB, text string) *Compiled {
	t.Helper()
	doc, err := ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Publish(doc, shop)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPublishedGraphStandsByItself(t *testing.T) {
	c := publish(t, order)
	want := `{"$defs":{"money":{"minimum":0,"type":"integer"}},` +
		`"edges":{"both":{"from":["charge","tally"],"to":"mail"},"end":{"from":"mail","to":"$finish"},"start":{"from":"$start","to":"charge","when":"state.amount > 0"},"tally":{"from":"$start","to":"tally"}},` +
		`"fields":{"log":{"reducer":{"max":100,"name":"append"},"schema":{"items":{"type":"string"},"type":"array"}},"receipt":{"schema":{"type":"string"}},"seen":{"default":null,"schema":{"type":["boolean","null"]}},"total":{"default":0,"reducer":"sum","schema":{"type":"integer"}}},` +
		`"id":"order",` +
		`"inputs":{"amount":{"required":true,"schema":{"$ref":"#/$defs/money"}},"note":{"default":"","schema":{"type":"string"}}},` +
		`"nodes":{"charge":{"config":{"currency":"EUR","fees":[{"of":"bank","percent":0},{"of":"shop","percent":2.50}],"limit":1.10,"rounding":{"mode":"half-even","places":2}},` +
		`"reads":{"amount":"amount","note":"note"},"retry":{"backoff":{"cap":"2h","factor":1.5,"initial":"1m30s"},"max_attempts":3},"timeout":"1m","use":"charge","version":3,"writes":{"log":"log","receipt":"receipt"}},` +
		`"mail":{"reads":{},"timeout":"1.5s","use":"noop","version":1,"writes":{}},` +
		`"tally":{"reads":{"amount":"amount"},"use":"set","version":1,"writes":{"seen":"seen","total":"total"}}},` +
		`"outputs":{"log":{"from":"log"},"note":{"from":"note"},"receipt":{"from":"receipt"},"seen":{"from":"seen"},"total":{"from":"total"}},` +
		`"policies":{"max_supersteps":10}}`
	if diff := cmp.Diff(want, string(c.Bytes())); diff != "" {
		t.Fatal(diff)
	}
	if c.Ref() != (Ref{ID: "order", Hash: value.Hash(c.Bytes())}) || len(c.Ref().Hash) != 64 {
		t.Fatal(c.Ref())
	}
	if canonical, err := value.Canonical(c.Bytes()); err != nil || !value.Equal(canonical, c.Bytes()) {
		t.Fatal("the bytes are not canonical", err)
	}
	if len(c.Warnings()) != 0 {
		t.Fatal(c.Warnings())
	}
}

func TestPublishingWhatWasPublishedGivesTheSameHash(t *testing.T) {
	c := publish(t, order)
	parsed, err := Parse(c.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]*Document{"parsed": parsed, "document": c.Document()} {
		again, err := Publish(doc, shop)
		if err != nil {
			t.Fatal(err)
		}
		if again.Ref() != c.Ref() || !value.Equal(again.Bytes(), c.Bytes()) {
			t.Fatalf("%s: %s\n%s", name, again.Bytes(), c.Bytes())
		}
	}
}

func TestLoadedGraphIsThePublishedOne(t *testing.T) {
	published := publish(t, order)
	loaded, err := Load(published.Ref(), published.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Compiled{"published": published, "loaded": loaded} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for _, ch := range c.Inputs() {
				names = append(names, "input "+ch.Name)
			}
			for _, ch := range c.Fields() {
				names = append(names, "field "+ch.Name)
			}
			for _, o := range c.Outputs() {
				names = append(names, "output "+o.Name+" from "+o.From)
			}
			for _, e := range c.Edges() {
				names = append(names, "edge "+e.ID+": "+strings.Join(e.From, "+")+" to "+e.To)
			}
			for _, from := range []string{Start, "charge", "tally", "mail", Finish, "nothing"} {
				line := "from " + from + ":"
				for _, e := range c.EdgesFrom(from) {
					line += " " + e.ID
				}
				names = append(names, line)
			}
			want := []string{
				"input amount", "input note", "field log", "field receipt", "field seen", "field total",
				"output log from log", "output note from note", "output receipt from receipt", "output seen from seen", "output total from total",
				"edge both: charge+tally to mail", "edge end: mail to $finish", "edge start: $start to charge", "edge tally: $start to tally",
				"from $start: start tally", "from charge: both", "from tally: both", "from mail: end", "from $finish:", "from nothing:",
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Fatal(diff)
			}
			charge := c.Node("charge")
			if diff := cmp.Diff(&CompiledNode{
				ID: "charge", Use: "charge", Version: 3, Timeout: time.Minute,
				Config: raw(`{"currency":"EUR","fees":[{"of":"bank","percent":0},{"of":"shop","percent":2.50}],"limit":1.10,"rounding":{"mode":"half-even","places":2}}`),
				Reads:  []Binding{{"amount", "amount"}, {"note", "note"}}, Writes: []Binding{{"log", "log"}, {"receipt", "receipt"}},
				Retry: Retry{MaxAttempts: 3, Backoff: Backoff{Initial: Duration(90 * time.Second), Factor: 1500, Cap: Duration(2 * time.Hour)}},
			}, charge); diff != "" {
				t.Fatal(diff)
			}
			mail := c.Node("mail")
			if mail.Config != nil || mail.Reads != nil || mail.Writes != nil || mail.Retry != (Retry{1, Backoff{Duration(time.Second), 2000, Duration(time.Hour)}}) {
				t.Fatalf("%+v", mail)
			}
			if c.Node("nothing") != nil || c.Channel("nothing") != nil || c.MaxSupersteps() != 10 || c.Nodes()[0] != charge {
				t.Fatal("a look-up is wrong")
			}
			if ch := c.Channel("amount"); !ch.Input || !ch.Required || ch.Default != nil || ch.Schema.Validate(raw(`-1`)) == nil {
				t.Fatalf("%+v", ch)
			}
			if ch := c.Channel("receipt"); ch.Reducer != (Reducer{Name: "replace"}) || ch.Input {
				t.Fatalf("%+v", ch)
			}
			if !c.Edges()[0].Barrier() || c.Edges()[1].Barrier() || !c.Edges()[2].Guarded() {
				t.Fatal("the edges are wrong")
			}
		})
	}
}

// H27: a default counts as declared even when it is false, 0, "" or null.
func TestH27DefaultsSurvive(t *testing.T) {
	const text = `
id: g
inputs: {a: {schema: {}, default: false}, none: {schema: {}}}
fields:
  b: {schema: {}, default: 0}
  c: {schema: {}, default: ""}
  d: {schema: {}, default: null}
  e: {schema: {}, default: }
  f: {schema: {}, default: []}
  g: {schema: {}, default: {}}
nodes: {n: {use: set, reads: {a: a, b: b, c: c, d: d, e: e, f: f, g: g, none: none}}}
edges: {s: {from: $start, to: n}, f: {from: n, to: $finish}}
`
	want := map[string]string{"a": `false`, "b": `0`, "c": `""`, "d": `null`, "e": `null`, "f": `[]`, "g": `{}`, "none": ``}
	published := publish(t, text)
	loaded, err := Load(published.Ref(), published.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Publish(loaded.Document(), shop)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Compiled{published, loaded, again} {
		for name, def := range want {
			if got := c.Channel(name).Default; string(got) != def || (def == "") != (got == nil) {
				t.Errorf("the default of %s is %q, want %q", name, got, def)
			}
		}
	}
}

// H30: the same graph gives the same bytes, hash, diagnostics and drawings, whatever
// the order in which it is written.
func TestH30OrderIsNoInformation(t *testing.T) {
	c := publish(t, order)
	var tree map[string]any
	if err := json.Unmarshal(c.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		text := shuffled(random, c.Bytes())
		doc, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Publish(doc, shop)
		if err != nil {
			t.Fatal(err)
		}
		if again.Ref() != c.Ref() || again.Mermaid(nil) != c.Mermaid(nil) || again.Graphviz(nil) != c.Graphviz(nil) {
			t.Fatalf("%s\ngives\n%s", text, again.Bytes())
		}
	}
	wrong := strings.NewReplacer("charge", "none", "amount:", "amout:", "$finish", "$end").Replace(order)
	first := describeDiagnostics(CheckYAML([]byte(wrong), shop))
	for range 20 {
		if again := describeDiagnostics(CheckYAML([]byte(wrong), shop)); again != first {
			t.Fatalf("%s\nthen\n%s", first, again)
		}
	}
}

// shuffled writes a JSON text with the members of its objects in random order.
func shuffled(random *rand.Rand, text []byte) string {
	e, wrong := parseTree(text)
	if wrong != nil {
		panic(wrong.Message)
	}
	var b strings.Builder
	var write func(e *element)
	write = func(e *element) {
		switch e.kind {
		case '{':
			b.WriteString("{ ")
			for i, at := range random.Perm(len(e.members)) {
				if i > 0 {
					b.WriteString(",\n")
				}
				name, _ := json.Marshal(e.members[at].name)
				b.Write(name)
				b.WriteString(" : ")
				write(e.members[at].value)
			}
			b.WriteString("}")
		case '[':
			b.WriteString("[")
			for i, item := range e.items {
				if i > 0 {
					b.WriteString(" , ")
				}
				write(item)
			}
			b.WriteString("]")
		default:
			b.Write(e.raw)
		}
	}
	write(e)
	return b.String()
}

func TestPublishLeavesTheDocumentAlone(t *testing.T) {
	doc, err := ParseYAML([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	before, err := ParseYAML([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Publish(doc, shop)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, doc); diff != "" {
		t.Fatal(diff)
	}
	copied := c.Document()
	copied.ID = "x"
	copied.Nodes["charge"].Reads["amount"] = "note"
	copied.Nodes["charge"].Retry.MaxAttempts = 99
	copied.Edges["both"].From[0] = "x"
	delete(copied.Nodes, "mail")
	delete(copied.Fields, "log")
	if diff := cmp.Diff(publish(t, order).Document(), c.Document()); diff != "" {
		t.Fatal(diff)
	}
}

func TestReadsAndWritesDefaultToWhatTheTypeDeclares(t *testing.T) {
	doc := func(reads, writes map[string]string) *Document {
		return &Document{
			ID:     "g",
			Inputs: map[string]Input{"amount": {Schema: raw(`{}`)}, "log": {Schema: raw(`{}`)}},
			Fields: map[string]Field{"receipt": {Schema: raw(`{}`)}, "sum": {Schema: raw(`{}`)}},
			Nodes:  map[string]Node{"n": {Use: "charge", Reads: reads, Writes: writes}},
			Edges:  map[string]Edge{"s": {From: Sources{Start}, To: "n"}, "f": {From: Sources{"n"}, To: Finish}},
		}
	}
	for _, c := range []struct {
		name                  string
		reads, writes         map[string]string
		wantReads, wantWrites []Binding
	}{
		// note is not declared, and log is an input, which no node writes.
		{"by name", nil, nil, []Binding{{"amount", "amount"}}, []Binding{{"receipt", "receipt"}}},
		{"only what is listed", map[string]string{"amount": "log"}, map[string]string{"log": "sum"}, []Binding{{"amount", "log"}}, []Binding{{"log", "sum"}}},
		{"nothing", nil, map[string]string{}, []Binding{{"amount", "amount"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Publish(doc(c.reads, c.writes), shop)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]Binding{c.wantReads, c.wantWrites}, [][]Binding{g.Node("n").Reads, g.Node("n").Writes}); diff != "" {
				t.Fatal(diff)
			}
			again, err := Publish(g.Document(), shop)
			if err != nil || again.Ref() != g.Ref() {
				t.Fatal(err, string(again.Bytes()))
			}
		})
	}
}

func TestOlderVersionThatIsAcceptedIsKept(t *testing.T) {
	doc := publish(t, order).Document()
	n := doc.Nodes["charge"]
	n.Version, n.Config = 2, raw(`{"old":1.0}`)
	doc.Nodes["charge"] = n
	c, err := Publish(doc, shop)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Node("charge"); got.Version != 2 || string(got.Config) != `{"old":1.0}` {
		t.Fatalf("%+v", got)
	}
	if w := c.Warnings(); len(w) != 1 || w[0].Code != codeUncheckedConfig {
		t.Fatal(w)
	}
}

func TestStoredGraphIsNotChangedByANewerType(t *testing.T) {
	old := publish(t, order)
	// Nothing of the catalog reaches Load: a type with other defaults, or none at all,
	// makes no difference.
	loaded, err := Load(old.Ref(), old.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !value.Equal(loaded.Node("charge").Config, old.Node("charge").Config) || !value.Equal(loaded.Bytes(), old.Bytes()) {
		t.Fatal(string(loaded.Node("charge").Config))
	}
}

func TestLoadRefusesOtherBytes(t *testing.T) {
	c := publish(t, order)
	for name, ref := range map[string]Ref{
		"another hash": {ID: "order", Hash: strings.Repeat("0", 64)}, "no hash": {ID: "order"}, "nothing": {},
	} {
		if _, err := Load(ref, c.Bytes()); !errors.Is(err, ErrDigest) || errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: %v", name, err)
		}
	}
	flipped := []byte(strings.Replace(string(c.Bytes()), "charge", "charme", 1))
	if _, err := Load(c.Ref(), flipped); !errors.Is(err, ErrDigest) {
		t.Error(err)
	}
	_, err := Load(Ref{ID: "other", Hash: c.Ref().Hash}, c.Bytes())
	var wrong *IncompatibleError
	if !errors.As(err, &wrong) || wrong.Ref.ID != "other" || len(wrong.Diagnostics) != 1 {
		t.Error(err)
	}
	var list Diagnostics
	if !errors.As(err, &list) {
		t.Error("the diagnostics are not wrapped")
	}
}

func TestBadInputIsATypedError(t *testing.T) {
	huge := []byte(`{"id":"` + strings.Repeat("a", 17<<20) + `"}`)
	for name, f := range map[string]func() error{
		"Parse":     func() error { _, err := Parse(huge); return err },
		"ParseYAML": func() error { _, err := ParseYAML(huge); return err },
	} {
		if err := f(); !errors.Is(err, value.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := Check(huge, shop); len(list) != 1 || list[0].Code != codeInvalidValue {
		t.Error(list)
	}
	var list Diagnostics
	for name, f := range map[string]func() error{
		"Publish nothing":            func() error { _, err := Publish(nil, shop); return err },
		"Publish an empty document":  func() error { _, err := Publish(&Document{}, nil); return err },
		"Publish without a catalog":  func() error { _, err := Publish(publish(t, order).Document(), nil); return err },
		"Publish with a nil catalog": func() error { _, err := Publish(publish(t, order).Document(), (*Manifest)(nil)); return err },
		"Parse nothing":              func() error { _, err := Parse(nil); return err },
		"ParseYAML nothing":          func() error { _, err := ParseYAML(nil); return err },
		"ParseYAML invalid UTF-8":    func() error { _, err := ParseYAML([]byte("id: \xff")); return err },
		"Parse invalid UTF-8":        func() error { _, err := Parse([]byte("{\"id\":\"\xff\"}")); return err },
		"a config that is too deep within the graph": func() error {
			doc := publish(t, order).Document()
			doc.Inputs["deep"] = Input{Schema: raw(`{}`), Default: raw(deepest)}
			_, err := Publish(doc, shop)
			return err
		},
		"a document made in Go": func() error {
			_, err := Publish(&Document{
				ID:      "g\xff",
				Defs:    map[string]value.Value{"d": raw(`{`)},
				Inputs:  map[string]Input{"i": {Schema: raw(`{"a":1,"a":2}`), Default: raw("\"\xff\"")}},
				Fields:  map[string]Field{"f": {Schema: raw(`nope`), Default: raw(``), Reducer: Reducer{By: "\xff"}}, "\xff": {}},
				Nodes:   map[string]Node{"n": {Use: "\xff", Config: raw(`NaN`), Timeout: -1, Reads: map[string]string{"\xff": "\xff"}, Retry: &Retry{MaxAttempts: 1, Backoff: Backoff{Initial: 1, Cap: -1, Factor: -1}}}},
				Edges:   map[string]Edge{"e": {From: Sources{"\xff"}, To: "\xff", When: "\xff"}},
				Outputs: map[string]Output{"o": {From: "\xff"}},
			}, shop)
			return err
		},
	} {
		if err := f(); !errors.As(err, &list) || len(list.Errors()) == 0 {
			t.Errorf("%s: %v", name, err)
		} else if !utf8.ValidString(err.Error()) {
			t.Errorf("%s: the error is not valid UTF-8: %q", name, err)
		}
	}
	if _, ok := (*Manifest)(nil).NodeType("a", 0); ok {
		t.Error("a nil manifest knows a type")
	}
}

func TestDocumentMarshalsAsItParses(t *testing.T) {
	doc, err := ParseYAML([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var again Document
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	// A replace reducer is what a document without one has.
	seen := doc.Fields["seen"]
	seen.Reducer = Reducer{}
	doc.Fields["seen"] = seen
	if diff := cmp.Diff(doc, &again); diff != "" {
		t.Fatal(diff)
	}
	if err := json.Unmarshal([]byte(`{"id":1}`), &again); err == nil || !strings.Contains(err.Error(), "wrong_type") {
		t.Fatal(err)
	}
}

func TestCheckAgreesWithPublish(t *testing.T) {
	for _, text := range []string{order, "id: g", "id: g\nnodes: {a: {use: noop}}\nedges: {s: {from: $start, to: a}}"} {
		if diff := cmp.Diff(found(text, shop), CheckYAML([]byte(text), shop)); diff != "" {
			t.Errorf("%s", diff)
		}
	}
}

func TestCatalogAnswersTheNewestThatFits(t *testing.T) {
	m := &Manifest{Nodes: []NodeType{
		{Name: "a", Version: 2}, {Name: "a", Version: 5, Accepts: []int{3, 4}}, {Name: "a", Version: 4, Accepts: []int{3}}, {Name: "b", Version: 1},
	}}
	for version, want := range map[int]int{0: 5, 1: 0, 2: 2, 3: 5, 4: 4, 5: 5, 6: 0} {
		got, ok := m.NodeType("a", version)
		if got.Version != want || ok != (want != 0) {
			t.Errorf("version %d: got %d, %v, want %d", version, got.Version, ok, want)
		}
	}
	if err := m.Nodes[1].Valid(); err != nil {
		t.Error(err)
	}
	if err := (NodeType{Name: "x y"}).Valid(); err == nil {
		t.Error("an invalid type is valid")
	}
}
