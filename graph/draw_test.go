package graph

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func TestDrawings(t *testing.T) {
	datadriven.Walk(t, "testdata/draw", func(t *testing.T, path string) {
		var c *Compiled
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "graph" {
				c = publish(t, d.Input)
				return ""
			}
			var p *Progress
			if d.Input != "" {
				p = &Progress{Nodes: map[string]Activity{}, Edges: map[string]int64{}}
			}
			for line := range linesOf(d.Input) {
				var name, is string
				var n int64
				if _, err := fmt.Sscanf(line, "%s %d", &name, &n); err == nil {
					p.Edges[name] = n
				} else if _, err := fmt.Sscanf(line, "%s %s", &name, &is); err == nil {
					p.Nodes[name] = Activity(is)
				}
			}
			switch d.Cmd {
			case "mermaid":
				return c.Mermaid(p)
			case "graphviz":
				return c.Graphviz(p)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}
