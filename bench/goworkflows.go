package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/core"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
)

const goWorkflowsSettings = "sqlite file (WAL, FULL, one connection, busy timeout 5s: its own settings), monoprocess wrapper, cache for every instance, worker defaults otherwise (2 pollers each, no limit of parallel tasks), as its own benchmark"

// goWorkflows runs n chains of activities in a file, started included.
type goWorkflows struct {
	path  string
	seen  *seen
	steps int
}

func (g *goWorkflows) chain(ctx workflow.Context, in input) (int, error) {
	for range g.steps {
		if _, err := workflow.ExecuteActivity[int](ctx, workflow.DefaultActivityOptions, g.activity, in.N).Get(ctx); err != nil {
			return 0, err
		}
	}
	return in.N, nil
}

func (g *goWorkflows) activity(_ context.Context, n int) (int, error) {
	g.seen.add(n)
	return n, nil
}

// run starts n instances and waits until all are finished.
func (g *goWorkflows) run(ctx context.Context, e *env, n int, payload string) (cost, error) {
	b := monoprocess.NewMonoprocessBackend(sqlite.NewSqliteBackend(g.path, sqlite.WithBackendOptions(backend.WithLogger(quiet()))))
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := worker.DefaultOptions
	options.WorkflowExecutorCacheSize = n
	w := worker.New(b, &options)
	if err := w.RegisterWorkflow(g.chain); err != nil {
		return cost{}, err
	}
	if err := w.RegisterActivity(g.activity); err != nil {
		return cost{}, err
	}
	if err := w.Start(ctx); err != nil {
		return cost{}, err
	}
	defer func() {
		cancel()
		_ = w.WaitForCompletion()
	}()
	// A look at the file by a connection of its own holds nobody up.
	look, err := g.look()
	if err != nil {
		return cost{}, err
	}
	defer look.Close()
	c := client.New(b)
	return e.measured(func() error {
		if err := parallel(ctx, starters, n, func(ctx context.Context, i int) error {
			_, err := c.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: fmt.Sprint("run-", i)}, g.chain, input{N: i, Payload: payload})
			return err
		}); err != nil {
			return err
		}
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
			var finished int
			if err := look.QueryRowContext(ctx, "select count(*) from instances where state = ?", int(core.WorkflowInstanceStateFinished)).Scan(&finished); err != nil {
				return err
			}
			if finished >= n {
				return nil
			}
			if time.Now().After(deadline) {
				return wrong("%d instances of %d finished", finished, n)
			}
		}
	})
}

// check proves that n instances are finished and each activity was executed once.
func (g *goWorkflows) check(ctx context.Context, n int) error {
	if err := g.seen.each(int32(g.steps)); err != nil {
		return err
	}
	db, err := g.look()
	if err != nil {
		return err
	}
	defer db.Close()
	var finished, all int
	err = db.QueryRowContext(ctx, "select count(*) filter (where state = ?), count(*) from instances", int(core.WorkflowInstanceStateFinished)).Scan(&finished, &all)
	if err == nil && (finished != n || all != n) {
		err = wrong("%d instances of %d finished, %d were started", finished, all, n)
	}
	return err
}

// look opens the file for reading. It waits: the worker's last transaction is rolled back by
// database/sql in the background, after its Close, and the connection that then leaves the file as
// the last one locks it for itself.
func (g *goWorkflows) look() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+g.path+"?mode=ro&_pragma=busy_timeout(30000)")
}
