package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/value"
)

func newGraphCommand(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Check, show and draw graph documents, and see which of them a release can run",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var nodes string
	cmd.PersistentFlags().StringVar(&nodes, "nodes", "",
		"a manifest, the JSON of Registry.Manifest, to check against instead of the built-in node types")
	cmd.AddCommand(newGraphCheck(t, &nodes), newGraphShow(t, &nodes), newGraphDiagram(t, &nodes), newGraphCompat(t, &nodes))
	return exits(cmd)
}

func newGraphCheck(t *terminal, nodes *string) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "check GRAPH",
		Short: "List everything that is wrong with a graph document",
		Long: `Check a graph document: every problem is listed with its path. Exits 1 when there are errors; warnings
alone are success.`,
		Args: oneGraph,
		RunE: func(_ *cobra.Command, args []string) error {
			known, err := catalog(*nodes)
			if err != nil {
				return err
			}
			found, err := belay.CheckGraph(args[0], known)
			if err != nil {
				return usage(err, "name a graph document, as in: belay graph check order.yaml")
			}
			if len(found.Errors()) > 0 {
				err := t.report(args[0], nil, found)
				if *nodes == "" && slices.ContainsFunc(found, func(d graph.Diagnostic) bool { return d.Code == node.CodeUnknownType }) {
					t.say("only the built-in node types are known: check against your own with --nodes MANIFEST, the JSON of Registry.Manifest")
				}
				return err
			}
			compiled, err := publish(args[0], known)
			if err != nil {
				return err
			}
			return t.report(args[0], compiled, found)
		},
	}, exitFailed)
}

// report prints the outcome of a check.
func (t *terminal) report(path string, compiled *graph.Compiled, found graph.Diagnostics) error {
	failed := len(found.Errors()) > 0
	if t.json {
		out := struct {
			Valid       bool              `json:"valid"`
			Graph       *graph.Ref        `json:"graph,omitempty"`
			Diagnostics graph.Diagnostics `json:"diagnostics"`
		}{Valid: !failed, Diagnostics: found}
		if out.Diagnostics == nil {
			out.Diagnostics = graph.Diagnostics{}
		}
		if compiled != nil {
			ref := compiled.Ref()
			out.Graph = &ref
		}
		if err := t.result(out); err != nil {
			return err
		}
	} else {
		for _, d := range found {
			if _, err := fmt.Fprintf(t.out, "%s: %s\n", path, d); err != nil {
				return err
			}
		}
		verdict := fmt.Sprintf("%s: %s, %s", path, count(len(found.Errors()), "error"), count(len(found.Warnings()), "warning"))
		if compiled != nil {
			verdict += ", version " + compiled.Ref().Hash
		}
		if _, err := fmt.Fprintln(t.out, verdict); err != nil {
			return err
		}
	}
	if failed {
		return errReported{exitFailed}
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newGraphShow(t *terminal, nodes *string) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "show GRAPH",
		Short: "Show a graph as it would be published",
		Long: `Show a graph as it would be published: defaults filled in, node types pinned to their contract
versions. With --json its canonical document, whose SHA-256 is the graph's version.`,
		Args: oneGraph,
		RunE: func(_ *cobra.Command, args []string) error {
			compiled, err := compile(args[0], *nodes)
			if err != nil {
				return err
			}
			if t.json {
				_, err := fmt.Fprintf(t.out, "%s\n", compiled.Bytes())
				return err
			}
			return t.show(compiled)
		},
	})
}

func (t *terminal) show(c *graph.Compiled) error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "graph\t%s\nversion\t%s\n", c.Ref().ID, c.Ref().Hash)
	if n := c.MaxSupersteps(); n > 0 {
		fmt.Fprintf(w, "supersteps\tat most %d\n", n)
	}
	section := func(title string) { fmt.Fprintf(w, "\n%s\n", title) }
	section("inputs")
	for _, in := range c.Inputs() {
		note := "optional"
		if in.Required {
			note = "required"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", in.Name, note, withDefault(in))
	}
	section("fields")
	for _, f := range c.Fields() {
		reducer := f.Reducer.Name
		if reducer == "" {
			reducer = "replace"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, reducer, withDefault(f))
	}
	section("nodes")
	for _, n := range c.Nodes() {
		fmt.Fprintf(w, "  %s\t%s@%d\treads %s\twrites %s\n", n.ID, n.Use, n.Version, bindings(n.Reads), bindings(n.Writes))
	}
	section("edges")
	doc := c.Document()
	for _, e := range c.Edges() {
		when := ""
		if e.Guarded() {
			when = "when " + doc.Edges[e.ID].When
		}
		fmt.Fprintf(w, "  %s\t%s -> %s\t%s\n", e.ID, strings.Join(e.From, " + "), e.To, when)
	}
	section("outputs")
	for _, o := range c.Outputs() {
		fmt.Fprintf(w, "  %s\tfrom %s\n", o.Name, o.From)
	}
	return w.Flush()
}

func withDefault(c *graph.Channel) string {
	if c.Default == nil {
		return ""
	}
	return "default " + string(c.Default)
}

func bindings(bs []graph.Binding) string {
	if len(bs) == 0 {
		return "nothing"
	}
	names := make([]string, len(bs))
	for i, b := range bs {
		names[i] = b.State
		if b.Name != b.State {
			names[i] = b.Name + "=" + b.State
		}
	}
	return strings.Join(names, ", ")
}

func newGraphDiagram(t *terminal, nodes *string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "diagram GRAPH",
		Short: "Draw a graph as Mermaid or Graphviz text",
		Args:  oneGraph,
		RunE: func(_ *cobra.Command, args []string) error {
			compiled, err := compile(args[0], *nodes)
			if err != nil {
				return err
			}
			var drawing string
			switch format {
			case "mermaid":
				drawing = compiled.Mermaid(nil)
			case "dot":
				drawing = compiled.Graphviz(nil)
			default:
				return usage(fmt.Errorf("--format %q is not known", format), "use mermaid or dot")
			}
			if t.json {
				return t.result(map[string]string{"format": format, "diagram": drawing})
			}
			_, err = fmt.Fprint(t.out, drawing)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "mermaid", "mermaid or dot")
	return exits(cmd)
}

// compile reads and compiles a graph, against the built-in nodes and a manifest.
func compile(path, nodes string) (*graph.Compiled, error) {
	known, err := catalog(nodes)
	if err != nil {
		return nil, err
	}
	return publish(path, known)
}

func publish(path string, known graph.Catalog) (*graph.Compiled, error) {
	doc, err := belay.ReadGraph(path)
	if err != nil {
		return nil, err
	}
	return graph.Publish(doc, known)
}

// foreign is what another binary can run, by its manifest. A manifest cannot hold the code
// that looks into the expressions of built-in nodes, so that is taken from here.
type foreign struct {
	manifest *graph.Manifest
	builtin  graph.Catalog
}

func (f foreign) NodeType(name string, version int) (graph.NodeType, bool) {
	t, ok := f.manifest.NodeType(name, version)
	if !ok {
		return t, false
	}
	if own, known := f.builtin.NodeType(name, t.Version); known && sameConfig(own, t) {
		t.Check = own.Check
	}
	return t, true
}

// Manifest lists what a misspelled name may have meant.
func (f foreign) Manifest() *graph.Manifest { return f.manifest }

// sameConfig tells a built-in type from another one of its name.
func sameConfig(a, b graph.NodeType) bool {
	x, errX := value.Canonical(a.Config)
	y, errY := value.Canonical(b.Config)
	return errX == nil && errY == nil && value.Equal(x, y)
}

// catalog is the built-in nodes, or with a manifest what it lists.
func catalog(nodes string) (graph.Catalog, error) {
	builtin := std.Register(node.NewRegistry())
	if nodes == "" {
		return builtin, nil
	}
	raw, err := os.ReadFile(nodes)
	if err != nil {
		return nil, usage(fmt.Errorf("--nodes cannot be read: %w", err), "write the JSON of Registry.Manifest to a file")
	}
	manifest, err := graph.ParseManifest(raw)
	if err != nil {
		return nil, usage(fmt.Errorf("--nodes %s is not a manifest: %w", nodes, err), "write the JSON of Registry.Manifest to a file")
	}
	return foreign{manifest, builtin}, nil
}
