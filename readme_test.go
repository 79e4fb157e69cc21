package belay_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/belay-run/belay/graph"
)

// page is what the Go snippets of a page take as given.
type page struct {
	imports []string
	given   string
	files   map[string]string // beside the snippets, as the page's own graphs are
	run     string            // the tests that also run; empty: none
}

// What belongs to the pages with Go snippets.
var pages = map[string]page{
	"README.md": {
		imports: []string{
			"context", "encoding/json", "errors", "fmt", "testing", "time", "github.com/belay-run/belay",
			"github.com/belay-run/belay/backend/sqlite", "github.com/belay-run/belay/node",
			"github.com/belay-run/belay/proptest", "github.com/belay-run/belay/proptest/graphtest", "github.com/belay-run/belay/value",
		},
		given: `
type processor struct{}

func (processor) Charge(context.Context, string, int64, string) (Receipt, error) { return Receipt{}, nil }

type chargeConfig struct{}

var (
	payments processor
	nodes    = node.NewRegistry()
	open     proptest.Opener

	orderGraph *belay.Graph
)

func chargeV3(context.Context, chargeConfig, Order) (Receipt, error) { return Receipt{}, nil }

func upgradeChargeConfig(v value.Value) (value.Value, error) { return v, nil }
`,
	},
	"docs/guarantees.md": {
		imports: []string{"context", "testing", "github.com/belay-run/belay/node"},
		given: `
type (
	Order   struct{ Card string; Amount int64 }
	Receipt struct{}
)

type processor struct{}

func (processor) Charge(context.Context, string, int64, string) (Receipt, error) { return Receipt{}, nil }

var (
	payments processor
	nodes    = node.NewRegistry()
)
`,
	},
	"docs/limits.md": {
		imports: []string{
			"context", "testing", "github.com/belay-run/belay", "github.com/belay-run/belay/backend",
			"github.com/belay-run/belay/claim", "github.com/belay-run/belay/node",
		},
		given: `
var (
	store backend.Store
	nodes *node.Registry
)
`,
	},
	"docs/nodes.md": {
		imports: []string{"context", "testing", "github.com/belay-run/belay/node", "github.com/belay-run/belay/node/std"},
	},
	"docs/observing.md": {
		imports: []string{
			"context", "log/slog", "testing", "time", "github.com/belay-run/belay", "github.com/belay-run/belay/backend",
			"github.com/belay-run/belay/lifecycle", "github.com/belay-run/belay/lifecycle/otel",
			"github.com/belay-run/belay/node", "github.com/belay-run/belay/value",
		},
		given: `
type limiter struct{}

func (limiter) Wait(context.Context) error { return nil }

var (
	rate  struct{ NewLimiter func(perSecond float64, burst int) limiter }
	store backend.Store
	nodes *node.Registry
)
`,
	},
	"docs/sealing.md": {
		imports: []string{
			"context", "testing", "github.com/belay-run/belay/backend/seal", "github.com/belay-run/belay/backend/sqlite",
		},
		given: `
var (
	ctx       = context.Background()
	may, june []byte
)
`,
	},
	"docs/testing.md": {
		imports: []string{
			"cmp", "context", "database/sql", "fmt", "testing", "testing/synctest", "time", "github.com/belay-run/belay",
			"github.com/belay-run/belay/backend/sqlite", "github.com/belay-run/belay/belaytest",
			"github.com/belay-run/belay/lifecycle", "github.com/belay-run/belay/node",
			"github.com/belay-run/belay/node/std", "github.com/belay-run/belay/run",
		},
		given: `
type Order struct {
	ID     int64 "json:\"id\""
	Amount int64 "json:\"amount\""
}

type Receipt struct {
	Paid bool "json:\"paid\""
}

var (
	db    *sql.DB
	store *sqlite.Store
	nodes = std.Register(node.NewRegistry()).Add(
		node.Of("approve", 1, func(ctx context.Context, in Order) (struct{}, error) {
			_, ok, err := node.Answered[bool](ctx, "")
			if err != nil || !ok {
				err = cmp.Or(err, node.Ask(node.Question{Prompt: fmt.Sprintf("charge %.2f?", float64(in.Amount)/100)}))
			}
			return struct{}{}, err
		}),
		node.Of("charge", 1, func(context.Context, Order) (Receipt, error) { return Receipt{Paid: true}, nil }))
)

func placeOrder(context.Context, *sql.Tx) (string, error) { return "", nil }
`,
		files: map[string]string{
			"order.yaml": `{id: order, inputs: {id: {schema: {type: integer}, required: true}, amount: {schema: {type: integer}, required: true}},
fields: {paid: {schema: {type: boolean}}}, nodes: {approve: {use: approve}, charge: {use: charge}},
edges: {a: {from: $start, to: approve}, b: {from: approve, to: charge}, c: {from: charge, to: $finish}}, outputs: {paid: {from: paid}}}`,
			"reminder.yaml": `{id: reminder, nodes: {wait: {use: sleep, config: {for: 24h}}}, edges: {a: {from: $start, to: wait}, b: {from: wait, to: $finish}}}`,
		},
		run: "^Test(Order|Reminder)$",
	},
	"docs/verifying.md": {
		imports: []string{
			"github.com/cockroachdb/datadriven",
			"os", "path/filepath", "testing", "github.com/belay-run/belay/backend", "github.com/belay-run/belay/graph",
			"github.com/belay-run/belay/node", "github.com/belay-run/belay/proptest", "github.com/belay-run/belay/proptest/graphtest",
		},
		given: `
type opened interface {
	backend.Store
	Close() error
}

var (
	mine  struct{ Open func(path string) (opened, error) }
	order *graph.Document
	nodes *node.Registry
)
`,
	},
	"docs/writing-nodes.md": {
		imports: []string{
			"cmp", "context", "fmt", "testing", "time", "github.com/belay-run/belay", "github.com/belay-run/belay/backend",
			"github.com/belay-run/belay/graph", "github.com/belay-run/belay/node", "github.com/belay-run/belay/node/std", "github.com/belay-run/belay/value",
		},
		given: `
type processor struct{}

func (processor) Charge(context.Context, string, int64, string) (string, error) { return "", nil }

func (processor) ChargeIn(context.Context, string, string, int64, string) (string, error) { return "", nil }

var payments processor

type post struct{}

func (post) Remind(context.Context, string, string) error { return nil }

var (
	mail   post
	id     string
	engine *belay.Engine
	store  backend.Store
)

// The page's graph is published with version 1, and both versions can run it.
func TestGraph(t *testing.T) {
	doc, err := belay.ReadGraph("order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := graph.Publish(doc, node.NewRegistry().Add(approve, charge))
	if err != nil {
		t.Fatal(err)
	}
	for _, nodes := range []*node.Registry{node.NewRegistry().Add(approve, charge), node.NewRegistry().Add(approve, chargeV2)} {
		if _, err := nodes.Prepare(compiled, 0); err != nil {
			t.Error(err)
		}
	}
}
`,
		run: "^TestGraph$",
	},
}

var (
	declaration = regexp.MustCompile(`(?m)^(func|type|var) `)
	defined     = regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) := `)
)

// TestTheSnippetsOfThePagesCompile puts the Go snippets of each page into one package and vets it.
func TestTheSnippetsOfThePagesCompile(t *testing.T) {
	found, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(found, "README.md") {
		snippets := fenced(t, name, "go")
		p, listed := pages[name]
		if listed != (len(snippets) > 0) {
			t.Errorf("%s has %d Go snippets: give what they need in the list of pages, or take it out", name, len(snippets))
		}
		if !listed {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.vet(t, snippets, fenced(t, name, "yaml"))
		})
	}
}

// vet compiles snippets, and runs those that the page says. A graph is in a file that is named by its id.
func (p page) vet(t *testing.T, snippets, graphs []string) {
	t.Helper()
	source := "package snippets\n\nimport (\n"
	for _, path := range p.imports {
		source += "\t\"" + path + "\"\n"
	}
	source += ")\n" + p.given
	for _, s := range snippets {
		switch {
		case strings.HasPrefix(s, "import "): // the list above has them
			continue
		case !declaration.MatchString(s): // statements
			for _, names := range defined.FindAllStringSubmatch(s, -1) {
				for name := range strings.SplitSeq(names[1], ", ") {
					s += "_ = " + name + "\n"
				}
			}
			s = "var _ = func(ctx context.Context, t *testing.T) error {\n" + s + "return nil\n}\n"
		}
		source += "\n" + s
	}
	dir, files := t.TempDir(), map[string]string{}
	for _, g := range graphs {
		id, _, _ := strings.Cut(strings.TrimPrefix(g, "id: "), "\n")
		files[id+".yaml"] = g
	}
	maps.Copy(files, p.files)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "snippets_test.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"vet", file}
	if p.run != "" {
		args = []string{"test", "-vet=all", "-run", p.run, file}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestREADMEGraphsAreGraphs reads README's graph documents.
func TestREADMEGraphsAreGraphs(t *testing.T) {
	documents := fenced(t, "README.md", "yaml")
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

// fenced lists a page's code blocks of a language.
func fenced(t *testing.T, file, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, strings.TrimSpace(string(m[1]))+"\n")
	}
	return blocks
}
