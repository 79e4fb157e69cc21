package otel_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/belay-run/belay/lifecycle/otel"
)

//go:generate go test . -run ^TestTheTableOfMetricsIsCurrent$ -write

var write = flag.Bool("write", false, "write the table into docs/observing.md")

func TestTheTableOfMetricsIsCurrent(t *testing.T) {
	const (
		path  = "../../docs/observing.md"
		begin = "<!-- metrics: generated, run go generate ./lifecycle/otel -->\n"
		end   = "<!-- end of metrics -->\n"
	)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	var b strings.Builder
	b.Write(before)
	b.WriteString(begin + "| metric | kind | unit | attributes | what it tells |\n|---|---|---|---|---|\n")
	for _, m := range otel.Metrics() {
		attributes := make([]string, len(m.Attributes))
		for i, a := range m.Attributes {
			attributes[i] = "`" + a + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s |\n", m.Name, m.Kind, m.Unit, strings.Join(attributes, ", "), m.Description)
	}
	b.WriteString(end)
	b.Write(after)
	if *write {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if b.String() != string(page) {
		t.Errorf("%s is not what the instruments say: run go generate ./lifecycle/otel", path)
	}
}
