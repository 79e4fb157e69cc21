// Command allergens plans a menu without what somebody must not eat. It shows typed nodes
// over a graph that is data:
//
//	go run ./examples/allergens -avoid gluten,milk -days 3
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
)

//go:embed graph.yaml
var document []byte

//go:embed recipes.json
var recipes json.RawMessage

func main() {
	avoid := flag.String("avoid", "gluten", "allergens to avoid, with commas between them")
	days := flag.Int("days", 3, "how many days the menu is for")
	flag.Parse()
	if err := plan(context.Background(), os.Stdout, recipes, strings.Split(*avoid, ","), *days); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Result is the output of the graph.
type Result struct {
	Menu     []Recipe          `json:"menu"`
	Excluded map[string]string `json:"excluded"`
	Shopping []string          `json:"shopping"`
	Card     string            `json:"card"`
}

// plan runs the graph once, and prints its result.
func plan(ctx context.Context, w io.Writer, recipes json.RawMessage, avoid []string, days int) error {
	store := memory.New(memory.Options{})
	defer store.Close()
	engine, err := belay.New(belay.Config{Backend: store, Nodes: nodes()})
	if err != nil {
		return err
	}
	doc, err := graph.ParseYAML(document)
	if err != nil {
		return err
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		return err
	}
	r, err := engine.Start(ctx, ref, map[string]any{
		"recipes": recipes, "avoid": avoid, "days": days,
	}, belay.StartOptions{})
	if err != nil {
		return err
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		return err
	}
	if r, err = engine.Await(ctx, r.ID); err != nil {
		return err
	}
	if r.Failure != nil {
		return fmt.Errorf("the run failed: %s", r.Failure.Message)
	}
	var out Result
	if err := json.Unmarshal(r.Output, &out); err != nil {
		return err
	}
	return out.print(w)
}

func (r Result) print(w io.Writer) error {
	var b strings.Builder
	if len(r.Menu) == 0 {
		b.WriteString("nothing is left to cook\n")
	} else {
		b.WriteString(r.Card)
		fmt.Fprintf(&b, "buy: %s\n", strings.Join(r.Shopping, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Excluded)) {
		fmt.Fprintf(&b, "without %s: %s\n", name, r.Excluded[name])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
