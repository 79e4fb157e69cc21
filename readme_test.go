package belay_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/belay-run/belay/graph"
)

// What README's snippets take as given.
const given = `package snippets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/value"
)

type processor struct{}

func (processor) Charge(context.Context, string, int64, string) (Receipt, error) { return Receipt{}, nil }

type chargeConfig struct{}

var (
	payments processor
	nodes    = node.NewRegistry()
	open     proptest.Opener
)

func chargeV3(context.Context, chargeConfig, Order) (Receipt, error) { return Receipt{}, nil }

func upgradeChargeConfig(v value.Value) (value.Value, error) { return v, nil }
`

// TestREADMESnippetsCompile puts the Go snippets of README into one package and vets it.
func TestREADMESnippetsCompile(t *testing.T) {
	snippets := fenced(t, "go")
	if len(snippets) < 3 {
		t.Fatalf("README has %d Go snippets, want one for each of the three uses at least", len(snippets))
	}
	source := given
	for _, s := range snippets {
		if !regexp.MustCompile(`(?m)^(func|type|var) `).MatchString(s) {
			s = "func init() {\n" + s + "}\n" // statements
		}
		source += "\n" + s
	}
	file := filepath.Join(t.TempDir(), "snippets_test.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestREADMEGraphsAreGraphs reads README's graph documents.
func TestREADMEGraphsAreGraphs(t *testing.T) {
	documents := fenced(t, "yaml")
	if len(documents) == 0 {
		t.Fatal("README has no graph")
	}
	manifest := &graph.Manifest{Format: graph.ManifestFormat, Nodes: []graph.NodeType{{
		Name: "charge", Version: 2,
		Reads:  map[string]graph.Port{"customer": {Required: true}, "amount": {Required: true}},
		Writes: map[string]graph.Port{"payment": {}},
	}}}
	for _, d := range documents {
		if found := graph.CheckYAML([]byte(d), manifest); len(found) > 0 {
			t.Errorf("%v\n%s", found, d)
		}
	}
}

// fenced lists README's code blocks of a language.
func fenced(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, strings.TrimSpace(string(m[1]))+"\n")
	}
	return blocks
}
