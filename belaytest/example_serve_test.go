package belaytest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/belaytest"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

// cleaningT is an exampleT whose cleanups are called at the end of an example.
type cleaningT struct {
	exampleT
	cleanups *[]func()
}

func newCleaningT() (t cleaningT, end func()) {
	t.cleanups = &[]func(){}
	return t, func() {
		for i := len(*t.cleanups) - 1; i >= 0; i-- {
			(*t.cleanups)[i]()
		}
	}
}

func (t cleaningT) Cleanup(f func()) { *t.cleanups = append(*t.cleanups, f) }

// A handler under test starts a run and awaits it, as it does in the service: the engine drives in the
// background until the test ends.
func ExampleEngine_Serve() {
	t, end := newCleaningT() // in a test: its t
	defer end()
	e := belaytest.New(t, belay.Config{Nodes: node.NewRegistry().Add(node.Of("greet", 1, func(context.Context, none) (none, error) {
		fmt.Println("hello")
		return none{}, nil
	}))})
	e.Serve()

	ref := e.MustPublishYAML(`
id: greeting
nodes: {greet: {use: greet}}
edges: {in: {from: $start, to: greet}, out: {from: greet, to: $finish}}
`)
	r, err := e.Await(context.Background(), e.MustStart(ref, nil).ID) // what the handler does
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Status)
	// Output:
	// hello
	// done
}

// A handler starts a run inside its own transaction. The test drives the run without a commit of the
// transaction, and rolls it back at the end: nothing is left.
func ExampleEngine_Adopt() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "host.db"), sqlite.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	nodes := std.Register(node.NewRegistry())
	engine, err := belay.New(belay.Config{Backend: store, Nodes: nodes})
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, err := graph.ParseYAML([]byte(sleeper))
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		fmt.Println(err)
		return
	}
	db, err := sql.Open("sqlite", store.HostDSN())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback()
	bound := store.WithTx(tx)
	r, err := engine.StartIn(ctx, bound, ref, nil, belay.StartOptions{}) // what the handler does
	if err != nil {
		fmt.Println(err)
		return
	}

	e := belaytest.New(t, belay.Config{Nodes: nodes})
	e.Adopt(bound, r.ID)
	fmt.Println(e.Rest(r.ID).Status)
	// Output: done
}
