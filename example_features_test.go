package belay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
)

// greeter is an engine in memory with the greeting published.
func greeter(cfg belay.Config) (*belay.Engine, belay.GraphRef) {
	cfg.Backend, cfg.Logger = memory.New(memory.Options{}), quiet
	cfg.Nodes = node.NewRegistry().Add(node.Of("greet", 1, greet))
	engine, err := belay.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	doc, err := graph.ParseYAML([]byte(greeting))
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(context.Background(), doc)
	if err != nil {
		log.Fatal(err)
	}
	return engine, ref
}

// Everything that is wrong with a configuration, the nodes included, is told at once.
func ExampleNew() {
	_, err := belay.New(belay.Config{Concurrency: -1})
	var wrong *belay.ConfigError
	if errors.As(err, &wrong) {
		for _, problem := range wrong.Problems {
			fmt.Println(problem)
		}
	}
	// Output:
	// Backend is nil: open one, for example memory.New(memory.Options{})
	// Nodes is nil: pass node.NewRegistry() with the node types of your graphs added
	// Concurrency is -1: use 1 or more, or 0 for the default
}

// ReadGraph reads YAML or JSON, and says what is wrong, and where.
func ExampleReadGraph() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "greeting.yaml")
	if err := os.WriteFile(path, []byte("id: greeting\nnodes: {greet: {uses: greet}}\nedges: {}\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	_, err = belay.ReadGraph(path)
	var found belay.Diagnostics
	if errors.As(err, &found) {
		for _, d := range found {
			fmt.Println(d.Path, d.Code)
		}
	}
	// Output: /nodes/greet/uses unknown_member
}

// A start that a caller repeats, because it did not hear the answer, is one run.
func ExampleStartOptions() {
	ctx := context.Background()
	engine, ref := greeter(belay.Config{})
	for range 2 {
		r, err := engine.Start(ctx, ref, person{"Ada"}, belay.StartOptions{Key: "greet-ada"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Existing)
	}
	// Output:
	// false
	// true
}

// The errors that a program tells apart have names.
func ExampleEngine_errors() {
	ctx := context.Background()
	engine, ref := greeter(belay.Config{})
	_, err := engine.Start(ctx, ref, map[string]int{"name": 7}, belay.StartOptions{})
	fmt.Println(errors.Is(err, belay.ErrInvalidInput))
	_, err = engine.Fetch(ctx, "no-such-run")
	fmt.Println(errors.Is(err, belay.ErrNotFound))
	r, err := engine.Start(ctx, ref, person{"Ada"}, belay.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		log.Fatal(err)
	}
	_, err = engine.Cancel(ctx, r.ID, "too late")
	fmt.Println(errors.Is(err, belay.ErrInactiveRun))
	// Output:
	// true
	// true
	// true
}
