package graph

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/belay-run/belay/value"
)

// shop is the catalog of the tests below.
var shop = &Manifest{Format: ManifestFormat, Nodes: []NodeType{
	{Name: "noop", Version: 1},
	{
		Name: "charge", Version: 3, Accepts: []int{2}, MaxTimeout: Duration(60e9),
		Config: raw(`{"type":"object","properties":{
			"currency":{"type":"string","default":"EUR"},
			"rounding":{"type":"object","properties":{"mode":{"default":"half-even"},"places":{"default":2}},"default":{}},
			"limit":{"type":"number","default":1.10},
			"fees":{"type":"array","items":{"$ref":"#/$defs/fee"}}},
			"required":["currency"],"additionalProperties":false,
			"$defs":{"fee":{"type":"object","properties":{"of":{"type":"string"},"percent":{"type":"number","default":0}}}}}`),
		Reads: map[string]Port{
			"amount": {Schema: raw(`{"type":"integer"}`), Required: true},
			"note":   {Schema: raw(`{"type":"string"}`)},
		},
		Writes: map[string]Port{"receipt": {Schema: raw(`{"type":"string"}`)}, "log": {Schema: raw(`{"type":"string"}`)}},
		Check: func(config value.Value, _, _ []string) error {
			if strings.Contains(string(config), "XXX") {
				return &value.Error{Path: "/currency", Reason: "XXX is no currency"}
			}
			return nil
		},
	},
	{Name: "set", Version: 1, OpenReads: true, OpenWrites: true},
	{
		Name: "either", Version: 1,
		Config: raw(`{"properties":{"for":{},"until":{}},"additionalProperties":false,"oneOf":[{"required":["for"]},{"required":["until"]}]}`),
	},
	{Name: "old", Version: 1, Reads: map[string]Port{"a": {}}},
	{Name: "old", Version: 2, Reads: map[string]Port{"b": {}}},
}}

// found runs a document through to its diagnostics.
func found(text string, catalog Catalog) Diagnostics {
	doc, err := ParseYAML([]byte(text))
	if err == nil {
		var c *Compiled
		if c, err = Publish(doc, catalog); err == nil {
			return c.Warnings()
		}
	}
	var list Diagnostics
	if !errors.As(err, &list) {
		panic(err)
	}
	return list
}

func describeDiagnostics(list Diagnostics) string {
	if len(list) == 0 {
		return "nothing to report\n"
	}
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%s %s at %q\n  %s\n", d.Severity, d.Code, d.Path, d.Message)
	}
	return b.String()
}

func TestDiagnostics(t *testing.T) {
	reported := map[string]bool{codeTooMany: true, codeTooManyWarnings: true} // have tests of their own
	datadriven.Walk(t, "testdata/diagnostics", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var list Diagnostics
			switch d.Cmd {
			case "publish":
				list = found(d.Input, shop)
			case "check":
				list = CheckYAML([]byte(d.Input), shop)
			case "json":
				if _, err := Parse([]byte(d.Input)); !errors.As(err, &list) && err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "yaml":
				if _, err := ParseYAML([]byte(strings.ReplaceAll(d.Input, "\\t", "\t"))); !errors.As(err, &list) && err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "load":
				_, err := Load(Ref{ID: "g", Hash: value.Hash([]byte(d.Input))}, []byte(d.Input))
				if err == nil {
					return "loaded\n"
				}
				var wrong *IncompatibleError
				if !errors.As(err, &wrong) || !errors.Is(err, ErrIncompatible) {
					d.Fatalf(t, "%v", err)
				}
				list = wrong.Diagnostics
			case "manifest":
				_, err := ParseManifest([]byte(d.Input))
				if err == nil {
					return "read\n"
				}
				if !errors.Is(err, ErrManifest) {
					d.Fatalf(t, "%v", err)
				}
				if !errors.As(err, &list) {
					return err.Error() + "\n"
				}
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			for _, one := range list {
				reported[one.Code] = true
				if severityOf(one.Code) != one.Severity {
					t.Errorf("%s has severity %q, the catalogue says %q", one.Code, one.Severity, severityOf(one.Code))
				}
			}
			return describeDiagnostics(list)
		})
	})
	for _, r := range rules {
		if !reported[r.Code] {
			t.Errorf("no case reports %s", r.Code)
		}
		delete(reported, r.Code)
	}
	for code := range reported {
		if code != codeTooMany && code != codeTooManyWarnings {
			t.Errorf("%s is reported but not in the catalogue", code)
		}
	}
}

func TestRulesAreSortedAndSayWhatToDo(t *testing.T) {
	last := ""
	for _, r := range Rules() {
		if r.Code <= last {
			t.Errorf("%q comes after %q", r.Code, last)
		}
		last = r.Code
		if !strings.HasSuffix(r.Broken, ".") || !strings.HasSuffix(r.Remedy, ".") {
			t.Errorf("%s: %q and %q must be sentences", r.Code, r.Broken, r.Remedy)
		}
	}
}

func TestDiagnosticsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"id":"g"`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	_, err := Parse([]byte(b.String() + "}"))
	var list Diagnostics
	if !errors.As(err, &list) || len(list) != maxDiagnostics+1 {
		t.Fatalf("got %d diagnostics", len(list))
	}
	if list[0].Code != codeTooMany {
		t.Fatalf("the first is %v", list[0])
	}
}

func TestAnyNumberOfWarningsStopsNoPublication(t *testing.T) {
	var nodes, edges strings.Builder
	for i := range 2 * maxDiagnostics {
		fmt.Fprintf(&nodes, "n%d: {use: noop}, ", i)
		fmt.Fprintf(&edges, "e%d: {from: $start, to: n%d}, ", i, i)
	}
	text := "id: g\nnodes: {" + nodes.String() + "}\nedges: {" + edges.String() + "%s}"
	list := found(fmt.Sprintf(text, ""), shop) // a dead end each
	if len(list) != maxDiagnostics+1 || len(list.Errors()) != 0 || list[0].Code != codeTooManyWarnings {
		t.Errorf("%d diagnostics, %d errors, the first %v", len(list), len(list.Errors()), list[0])
	}
	list = found(fmt.Sprintf(text, "bad: {from: n1, to: nowhere}"), shop)
	if len(list.Errors()) != 1 || list[0].Code != codeUnknownEdgeTarget {
		t.Errorf("an error beside them: %v", list.Errors())
	}
}

func TestDiagnosticsSayHowMany(t *testing.T) {
	list := found("id: g\nnodes: {a: {use: noop}}\nedges: {s: {from: $start, to: b}}\nextra: 1", shop)
	if got := list.Error(); got != "belay: the graph document has an error: /extra: error: A graph document has no member \"extra\": use $defs, edges, fields, id, inputs, nodes, outputs or policies. (unknown_member)" {
		t.Fatal(got)
	}
	list = found("id: g\nnodes: {a: {use: noop}}\nedges: {s: {from: $start, to: b}}", shop)
	if got := list.Error(); !strings.HasPrefix(got, "belay: the graph document has 2 errors:\n  /edges: error: ") {
		t.Fatal(got)
	}
	if len(list.Errors()) != 2 || len(list.Warnings()) != 1 {
		t.Fatal(list)
	}
}

func TestADiagnosticOfTheWholeSaysWhatItIsOf(t *testing.T) {
	_, err := Parse([]byte("[]"))
	if want := "belay: the graph document has an error: the document: error: A graph document must be an object, not an array. (wrong_type)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for text, want := range map[string]string{
		"id: g":                         "belay: invalid manifest: it has an error: the manifest: error: The text stops being JSON at line 1, column 1: ",
		`{"format":1}`:                  "",
		`{"format":1,"nodes":{},"x":1}`: "belay: invalid manifest: it has 2 errors:\n  /nodes: error: ",
	} {
		_, err := ParseManifest([]byte(text))
		switch {
		case want == "" && err == nil:
		case err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "document") || !errors.Is(err, ErrManifest):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestDistanceCountsMistakesOfTheHand(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"sleep", "sleep", 0}, {"slep", "sleep", 1}, {"sleeep", "sleep", 1}, {"sleap", "sleep", 1}, {"chrage", "charge", 1}, {"set", "ask", 3}, {"a", "abcdefghi", 5}, {"ab", "", 2}} {
		if got := distance(c.a, c.b, 5); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a, 5); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestCatalogueInDocsIsCurrent(t *testing.T) {
	got, err := os.ReadFile(filepath.Join("..", "docs", "diagnostics.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != RulesMarkdown() {
		t.Fatal("docs/diagnostics.md is not what the catalogue says: run go generate ./graph")
	}
}
