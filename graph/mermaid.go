package graph

import (
	"fmt"
	"strings"
)

// Mermaid draws the graph as a Mermaid flowchart; p may be nil. A barrier is drawn
// as a node of its own. The same graph and progress give the same text.
func (c *Compiled) Mermaid(p *Progress) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	// Ids of their own, since words such as "end" mean something to Mermaid.
	ids := map[string]string{Start: "start", Finish: "finish"}
	line("flowchart TD")
	line(`  start(["start"])`)
	for i, n := range c.nodes {
		ids[n.ID] = fmt.Sprintf("n%d", i)
		line(`  n%d["%s"]`, i, mermaidText(nodeLines(n)))
	}
	line(`  finish(["finish"])`)

	var fired []string
	links := 0
	link := func(from, label, to string, hot bool) {
		if label != "" {
			label = fmt.Sprintf(`|"%s"|`, label)
		}
		line("  %s -->%s %s", from, label, to)
		if hot {
			fired = append(fired, fmt.Sprint(links))
		}
		links++
	}
	for i, e := range c.edges {
		label, hot := mermaidText(edgeLines(c, e, p)), p.fired(e.ID) > 0
		from := e.From[0]
		if e.Barrier() {
			join := fmt.Sprintf("b%d", i)
			line(`  %s{{"%s"}}`, join, mermaidText([]string{e.ID}))
			for _, source := range e.From {
				link(ids[source], "", join, hot)
			}
			link(join, label, ids[e.To], hot)
			continue
		}
		link(ids[from], label, ids[e.To], hot)
	}
	for _, colour := range paint {
		var nodes []string
		for _, n := range c.nodes {
			if p.activity(n.ID) == colour.activity {
				nodes = append(nodes, ids[n.ID])
			}
		}
		if len(nodes) > 0 {
			line("  classDef %s fill:%s,stroke:%s,color:#1b1b1b", colour.activity, colour.fill, colour.line)
			line("  class %s %s", strings.Join(nodes, ","), colour.activity)
		}
	}
	if len(fired) > 0 {
		line("  linkStyle %s stroke:%s,stroke-width:2px", strings.Join(fired, ","), paint[0].line)
	}
	return b.String()
}

// mermaidText writes lines for a quoted text: entities for what would end the text
// or mean markup, a comment or a directive.
func mermaidText(lines []string) string {
	return escaped(lines, "<br/>", func(r rune) string {
		switch r {
		case '"':
			return "#quot;"
		case '<':
			return "#lt;"
		case '>':
			return "#gt;"
		case '&', '#', '%', '`', '|', '\\', ';', '{', '}', '[', ']':
			return fmt.Sprintf("#%d;", r)
		}
		return ""
	})
}
