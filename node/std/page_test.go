package std_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/value"
)

//go:generate go test . -run ^TestThePageOfNodesIsCurrent$ -write

var write = flag.Bool("write", false, "write docs/nodes.md")

func TestThePageOfNodesIsCurrent(t *testing.T) {
	const path = "../../docs/nodes.md"
	want := page(t)
	if *write {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the node types say: run go generate ./node/std", path)
	}
}

func TestTheExamplesOfThePageCanBePublished(t *testing.T) {
	nodes := std.Register(node.NewRegistry())
	for _, typ := range std.Nodes() {
		name := typ.Contract().Name
		doc, err := graph.ParseYAML(example(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(doc.Nodes)), func(n graph.Node) bool { return n.Use == name }) {
			t.Errorf("%s: no node uses it", name)
		}
		compiled, err := graph.Publish(doc, nodes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w := compiled.Warnings(); len(w) > 0 {
			t.Errorf("%s: %v", name, w)
		}
		if _, err := nodes.Prepare(compiled, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryConfigMemberAndWriteIsDescribed(t *testing.T) {
	for _, typ := range std.Nodes() {
		c := typ.Contract()
		config := read(t, c.Config)
		if config.Description == "" {
			t.Errorf("%s is not", c.Name)
		}
		for name, member := range config.Properties {
			if member.Description == "" {
				t.Errorf("config member %s of %s is not", name, c.Name)
			}
		}
		for name, port := range c.Writes {
			if read(t, port.Schema).Description == "" {
				t.Errorf("write %s of %s is not", name, c.Name)
			}
		}
	}
}

// schema is as much of a JSON Schema as the types of this package use.
type schema struct {
	Description          string             `json:"description"`
	Type                 any                `json:"type"`
	Enum                 []value.Value      `json:"enum"`
	Default              value.Value        `json:"default"`
	Required             []string           `json:"required"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	AnyOf                []schema           `json:"anyOf"`
	OneOf                []schema           `json:"oneOf"`
	Minimum              json.Number        `json:"minimum"`
	Maximum              json.Number        `json:"maximum"`
}

func read(t *testing.T, raw value.Value) *schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return &s
}

func example(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/nodes/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const introduction = `# Built-in nodes

These node types do the everyday work of [a graph](graphs.md) without any Go. ` + "`belay run`" + ` has
them. A program of your own has them once it registers them:

` + "```go" + `
nodes := std.Register(node.NewRegistry()) // package node/std
` + "```" + `

A string in their configs may hold ` + "`${expression}`" + `, over the names that the node's ` + "`reads`" + ` bind. A
string that is one expression and nothing else stands for the expression's value, whatever its
type; in any other string the values are put in as text. ` + "`$${`" + ` is a literal ` + "`${`" + `. Expressions are
compiled when a graph is checked; one that fails when it runs fails the run.

This page is generated from the types of package ` + "`node/std`" + `.
`

func page(t *testing.T) []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	for _, typ := range std.Nodes() {
		c := typ.Contract()
		config := read(t, c.Config)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", c.Name, config.Description)
		b.WriteString("\n| config | type | default | meaning |\n|---|---|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(config.Properties)) {
			member := config.Properties[name]
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, cell(member.kind(t)), fallback(config, name), cell(member.Description))
		}
		for _, choice := range []struct {
			says string
			of   []schema
		}{{"At least one of %s must be there.", config.AnyOf}, {"Exactly one of %s must be there.", config.OneOf}} {
			if len(choice.of) > 0 {
				var names []string
				for _, branch := range choice.of {
					names = append(names, "`"+strings.Join(branch.Required, "` with `")+"`")
				}
				fmt.Fprintf(&b, "\n"+choice.says+"\n", strings.Join(names, " and "))
			}
		}
		b.WriteString("\nReads: " + reads(t, c) + "\n\nWrites: " + writes(t, c) + "\n")
		fmt.Fprintf(&b, "\n```yaml\n%s```\n", example(t, c.Name))
	}
	return b.Bytes()
}

func reads(t *testing.T, c graph.NodeType) string {
	t.Helper()
	if len(c.Reads) > 0 || !c.OpenReads {
		t.Fatalf("%s has reads of its own, which the page does not list", c.Name)
	}
	return "whatever its `reads` list, for the expressions in its config."
}

func writes(t *testing.T, c graph.NodeType) string {
	t.Helper()
	switch {
	case len(c.Writes) == 0 && c.OpenWrites:
		return "what its `writes` list, and the config gives."
	case len(c.Writes) == 0:
		return "nothing."
	case c.OpenWrites:
		t.Fatalf("%s has writes of its own and others, which the page does not tell apart", c.Name)
	}
	var b strings.Builder
	b.WriteString("these, of which a graph may bind any.\n\n| write | type | what it is |\n|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(c.Writes)) {
		s := read(t, c.Writes[name].Schema)
		fmt.Fprintf(&b, "\n| `%s` | %s | %s |", name, s.kind(t), cell(s.Description))
	}
	return b.String()
}

// kind is the type of a schema in words.
func (s *schema) kind(t *testing.T) string {
	t.Helper()
	if len(s.Enum) > 0 {
		var texts []string
		for _, v := range s.Enum {
			texts = append(texts, "`"+string(v)+"`")
		}
		return strings.Join(texts, ", ")
	}
	kind := "any"
	switch typ := s.Type.(type) {
	case string:
		kind = typ
	case []any:
		var names []string
		for _, name := range typ {
			names = append(names, fmt.Sprint(name))
		}
		kind = strings.Join(names, " or ")
	}
	if s.Items != nil {
		kind += " of " + s.Items.kind(t)
	}
	if raw := s.AdditionalProperties; len(raw) > 0 && raw[0] == '{' {
		kind += " of " + read(t, value.Value(raw)).kind(t)
	}
	if s.Minimum != "" && s.Maximum != "" {
		kind += fmt.Sprintf(", %s to %s", s.Minimum, s.Maximum)
	}
	return kind
}

func fallback(config *schema, name string) string {
	switch {
	case slices.Contains(config.Required, name):
		return "required"
	case config.Properties[name].Default != nil:
		return "`" + string(config.Properties[name].Default) + "`"
	}
	return ""
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
