package run

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/looplab/fsm"

	"github.com/belay-run/belay/checkpoint"
)

const page = "../docs/machine.md"

// The page's diagram and table are drawn from the status table.
func TestThePageOfTheMachineIsCurrent(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated from the status table: go generate ./run -->\n", "<!-- end of the generated part -->\n"
	head, rest, ok := bytes.Cut(raw, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has lost the marks of its generated part", page)
	}
	want := string(head) + begin + statusPart(t) + end + string(tail)
	if rewrite() {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(raw) != want {
		t.Errorf("%s is not what the status table says: run go generate ./run", page)
	}
}

func statusPart(t *testing.T) string {
	t.Helper()
	diagram, err := fsm.VisualizeWithType(fsm.NewFSM(string(Created), table, nil), fsm.MermaidStateDiagram)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n```mermaid\n%s```\n\n| status |", diagram)
	for _, m := range Moves() {
		fmt.Fprintf(&b, " %s |", m)
	}
	b.WriteString(" schedules |\n|---|" + strings.Repeat("---|", len(Moves())+1) + "\n")
	for _, s := range Statuses() {
		fmt.Fprintf(&b, "| **%s** |", s)
		for _, m := range Moves() {
			if to, ok := Next(s, m); ok {
				fmt.Fprintf(&b, " %s |", to)
				continue
			}
			b.WriteString(" |")
		}
		var kinds []string
		for kind := checkpoint.Retain; kind <= checkpoint.ReleaseTerminal; kind++ {
			if Fits(checkpoint.Schedule{Kind: kind}, s) {
				kinds = append(kinds, kind.String())
			}
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(kinds, ", "))
	}
	b.WriteString("\n")
	return b.String()
}

// Every type that a reader may meet stands in a row of the page's tables.
func TestThePageOfTheMachineNamesEveryType(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range checkpoint.Types() {
		if !bytes.Contains(raw, []byte("| `"+string(typ)+"` |")) {
			t.Errorf("the checkpoint type %s is missing", typ)
		}
	}
	for _, typ := range EventTypes() {
		if !bytes.Contains(raw, []byte("| `"+string(typ)+"` |")) {
			t.Errorf("the event type %s is missing", typ)
		}
	}
}
