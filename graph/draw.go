package graph

import (
	"fmt"
	"strings"
	"unicode"
)

// Activity is where a node is in a run, for colouring a drawing.
type Activity string

// The activities.
const (
	Idle   Activity = ""
	Done   Activity = "done"
	Active Activity = "active"
	Parked Activity = "parked"
	Asking Activity = "asking"
	Broken Activity = "broken"
)

// Progress colours a drawing: a run's activity by node, and how often each edge fired.
type Progress struct {
	Nodes map[string]Activity
	Edges map[string]int64
}

// paint is the fill and the line of an activity, in the order of the legend.
var paint = []struct {
	activity   Activity
	fill, line string
}{
	{Done, "#d3f2d9", "#2b7a3d"},
	{Active, "#d6e6ff", "#1f5fbf"},
	{Parked, "#fff0c9", "#a87400"},
	{Asking, "#ead9ff", "#6b35b8"},
	{Broken, "#ffd9d6", "#b3261e"},
}

func (p *Progress) activity(node string) Activity {
	if p == nil {
		return Idle
	}
	return p.Nodes[node]
}

func (p *Progress) fired(edge string) int64 {
	if p == nil {
		return 0
	}
	return p.Edges[edge]
}

// nodeLines is what is written into a node.
func nodeLines(n *CompiledNode) []string {
	if n.Use == n.ID {
		return []string{n.ID}
	}
	return []string{n.ID, n.Use}
}

// edgeLines is what is written beside an edge.
func edgeLines(c *Compiled, e *CompiledEdge, p *Progress) []string {
	var lines []string
	if when := c.document.Edges[e.ID].When; when != "" {
		lines = strings.Split(strings.TrimSpace(when), "\n")
	}
	if n := p.fired(e.ID); n > 1 {
		lines = append(lines, fmt.Sprintf("fired %d times", n))
	}
	return lines
}

// escaped joins lines, each rune written as escape says; control characters become spaces.
func escaped(lines []string, newline string, escape func(r rune) string) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteString(newline)
		}
		for _, r := range strings.TrimSpace(line) {
			if unicode.IsControl(r) {
				r = ' '
			}
			if s := escape(r); s != "" {
				b.WriteString(s)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
