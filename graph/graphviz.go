package graph

import (
	"fmt"
	"strings"
)

// Graphviz draws the graph in the DOT language; p may be nil. A barrier is drawn as
// a node of its own. The same graph and progress give the same text.
func (c *Compiled) Graphviz(p *Progress) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("digraph %s {", dotText([]string{c.ref.ID}))
	line("  rankdir=TB;")
	line(`  node [shape=box, style="rounded,filled", fillcolor="#f7f7f7", fontname="Helvetica"];`)
	line(`  edge [fontname="Helvetica", fontsize=10];`)
	line(`  %s [label="start", shape=oval];`, dotText([]string{Start}))
	for _, n := range c.nodes {
		attributes := "label=" + dotText(nodeLines(n))
		for _, colour := range paint {
			if p.activity(n.ID) == colour.activity {
				attributes += fmt.Sprintf(`, fillcolor="%s", color="%s"`, colour.fill, colour.line)
			}
		}
		line("  %s [%s];", dotText([]string{n.ID}), attributes)
	}
	line(`  %s [label="finish", shape=oval];`, dotText([]string{Finish}))
	for _, e := range c.edges {
		var attributes []string
		if lines := edgeLines(c, e, p); len(lines) > 0 {
			attributes = append(attributes, "label="+dotText(lines))
		}
		hot := ""
		if p.fired(e.ID) > 0 {
			hot = fmt.Sprintf(`color="%s", penwidth=2`, paint[0].line)
			attributes = append(attributes, hot)
		}
		from := dotText([]string{e.From[0]})
		if e.Barrier() {
			// A node id never begins with "$".
			from = dotText([]string{"$barrier " + e.ID})
			line("  %s [label=%s, shape=hexagon];", from, dotText([]string{e.ID}))
			for _, source := range e.From {
				line("  %s -> %s%s;", dotText([]string{source}), from, bracketed(hot))
			}
		}
		line("  %s -> %s%s;", from, dotText([]string{e.To}), bracketed(strings.Join(attributes, ", ")))
	}
	line("}")
	return b.String()
}

func bracketed(attributes string) string {
	if attributes == "" {
		return ""
	}
	return " [" + attributes + "]"
}

// dotText writes lines as one quoted string.
func dotText(lines []string) string {
	return `"` + escaped(lines, `\n`, func(r rune) string {
		switch r {
		case '"':
			return `\"`
		case '\\':
			return `\\`
		case '&':
			return "&amp;"
		}
		return ""
	}) + `"`
}
