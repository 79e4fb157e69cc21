package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// CompatOptions says how closely Compat looks. The zero value is fine.
type CompatOptions struct {
	// MaxNodeTimeout is Config.MaxNodeTimeout of the engines that are to run here.
	MaxNodeTimeout time.Duration
	// Documents also reads the document of every unfinished run, for those of a format that this
	// binary cannot read.
	Documents bool
}

// Compatibility is whether a binary can run the unfinished runs of one graph version.
type Compatibility struct {
	Owner backend.Owner
	Graph graph.Ref
	// Running (scheduled ones included), Waiting and Poisoned count the unfinished runs.
	Running, Waiting, Poisoned int
	// Oldest is when the first of them started.
	Oldest time.Time
	// Unreadable counts those whose document cannot be read here, with CompatOptions.Documents.
	Unreadable int
	// Reasons are why an engine would hand the runs back, with the codes of Abandon; none: it
	// would run them.
	Reasons []node.Incompatibility
}

// Compat tells, for every graph version that unfinished runs are of, whether an engine with these
// nodes can run it: before a release is rolled out, say. It claims nothing and changes nothing. Runs
// may start and finish meanwhile; those that it meets are counted. The answer is in the order of
// graph id, hash and owner. An error is the backend's, the registry's (node.ErrInvalidType), or
// backend.ErrInvalidArgument.
func Compat(ctx context.Context, store backend.Store, nodes *node.Registry, opts CompatOptions) ([]Compatibility, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	switch {
	case store == nil:
		return nil, &backend.ArgumentError{Argument: "store", Reason: "is nil: open one"}
	case nodes == nil:
		return nil, &backend.ArgumentError{Argument: "nodes", Reason: "is nil: pass the registry of the engines, or an empty one"}
	case opts.MaxNodeTimeout < 0:
		return nil, &backend.ArgumentError{Argument: "MaxNodeTimeout", Reason: "is negative: use 0 for no bound"}
	}
	if err := nodes.Err(); err != nil {
		return nil, err
	}
	c := &compat{store: store, nodes: nodes, opts: opts, found: map[ownedRef]*Compatibility{}, answers: map[graph.Ref][]node.Incompatibility{}}
	if err := c.count(ctx); err != nil {
		return nil, err
	}
	all := make([]Compatibility, 0, len(c.found))
	for _, one := range c.found {
		if err := c.judge(ctx, one); err != nil {
			return nil, err
		}
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Compatibility) int {
		tenantA, _ := a.Owner.Tenant()
		tenantB, _ := b.Owner.Tenant()
		return cmp.Or(strings.Compare(a.Graph.ID, b.Graph.ID), strings.Compare(a.Graph.Hash, b.Graph.Hash), strings.Compare(tenantA, tenantB))
	})
	return all, nil
}

// compat is one Compat at work.
type compat struct {
	store   backend.Store
	nodes   *node.Registry
	opts    CompatOptions
	found   map[ownedRef]*Compatibility
	answers map[graph.Ref][]node.Incompatibility // of graphs that could be read, whoever's
}

// count goes through the unfinished runs.
func (c *compat) count(ctx context.Context) error {
	q := backend.Query{Statuses: []run.Status{run.Running, run.Waiting}, Limit: backend.MaxLimit}
	for {
		page, err := c.store.ListRuns(ctx, backend.System(), q)
		if err != nil {
			return fmt.Errorf("belay: the unfinished runs cannot be listed: %w", err)
		}
		for _, r := range page.Runs {
			if err := c.meet(ctx, r); err != nil {
				return err
			}
		}
		if !page.HasMore {
			return nil
		}
		q.Before = page.Next
	}
}

func (c *compat) meet(ctx context.Context, r backend.Summary) error {
	key := ownedRef{r.Owner, r.Graph}
	one := c.found[key]
	if one == nil {
		one = &Compatibility{Owner: r.Owner, Graph: r.Graph}
		c.found[key] = one
	}
	one.Oldest = r.StartedAt // the list is newest first
	switch {
	case !r.Poison.At.IsZero():
		one.Poisoned++
	case r.Status == run.Waiting:
		one.Waiting++
	default:
		one.Running++
	}
	if !c.opts.Documents {
		return nil
	}
	_, err := c.store.FetchRun(ctx, backend.Of(r.Owner), r.Run)
	if err == nil || errors.Is(err, backend.ErrNotFound) { // not found: it has finished, and is deleted
		return nil
	}
	code := documentCode(err)
	if code == "" {
		return fmt.Errorf("belay: the document of run %s cannot be read: %w", r.Run, err)
	}
	if one.Unreadable++; one.Unreadable == 1 { // one of them will do
		one.Reasons = append(one.Reasons, reason(code, err)...)
	}
	return nil
}

// judge says why the graph cannot be run.
func (c *compat) judge(ctx context.Context, one *Compatibility) error {
	raw, err := c.store.FetchGraph(ctx, one.Owner, one.Graph)
	if err != nil {
		code := graphCode(err)
		if code == "" {
			return fmt.Errorf("belay: version %s of graph %s cannot be read: %w", one.Graph.Hash, one.Graph.ID, err)
		}
		one.Reasons = append(one.Reasons, reason(code, err)...)
		return nil
	}
	reasons, known := c.answers[one.Graph]
	if !known {
		if reasons, err = c.prepare(one.Graph, raw); err != nil {
			return err
		}
		c.answers[one.Graph] = reasons
	}
	one.Reasons = append(one.Reasons, reasons...)
	return nil
}

// prepare does what an engine does before it runs a graph.
func (c *compat) prepare(ref graph.Ref, raw []byte) ([]node.Incompatibility, error) {
	compiled, err := graph.Load(ref, raw)
	if err == nil {
		_, err = c.nodes.Prepare(compiled, c.opts.MaxNodeTimeout)
	}
	var incompatible *node.IncompatibleError
	if err == nil {
		return nil, nil
	} else if errors.As(err, &incompatible) {
		return incompatible.Reasons, nil
	} else if code := graphCode(err); code != "" {
		return reason(code, err), nil
	}
	return nil, err
}
