package lifecycle

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
)

// StartIn starts a run in the host's own transaction: tx is a store that is bound to it (WithTx of
// the SQL backends), and the run is there when the host commits, and never was when it
// rolls back (clauses F2, X8). The graph may have been published in the same transaction.
// It answers as Start does, repeats nothing by itself, and tells no hook of a commit. The run is stored
// as due: it is found by the next poll after the commit, or at once when the host calls Wake then.
func (c *Client) StartIn(ctx context.Context, tx backend.Starter, ref graph.Ref, input any, opts StartOptions) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if isNil(tx) {
		return nil, &backend.ArgumentError{Argument: "tx", Reason: "is nil: pass the store bound to your transaction, as in store.WithTx(tx)"}
	}
	g, err := check(ref, input, opts)
	if err != nil {
		return nil, err
	}
	if ref.Hash == "" {
		latest, err := tx.LatestGraph(ctx, c.owner, ref.ID)
		if err != nil {
			return nil, unpublished(ref, err)
		}
		ref.Hash = latest.Ref.Hash
	}
	p, err := c.programIn(ctx, tx, ref)
	if err != nil {
		return nil, unpublished(ref, err)
	}
	now, err := c.engine.presentIn(ctx, tx)
	if err != nil {
		return nil, err
	}
	init, told, err := c.initialize(ctx, p, g, now)
	if err != nil {
		return nil, err
	}
	inserted, err := tx.InsertRun(ctx, c.owner, init)
	c.tellStarted(told, init.Document, inserted, err)
	if err != nil {
		return nil, err
	}
	return c.started(ctx, tx, init, inserted)
}

// programIn is the program of a graph that the transaction sees. What only the transaction
// sees is not kept as the owner's.
func (c *Client) programIn(ctx context.Context, tx backend.Starter, ref graph.Ref) (*program, error) {
	e := c.engine
	e.graphs.mu.RLock()
	p := e.graphs.owned[ownedRef{c.owner, ref}]
	e.graphs.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	raw, err := tx.FetchGraph(ctx, c.owner, ref)
	if err != nil {
		return nil, err
	}
	return e.compile(ref, raw)
}

// presentIn is the backend's now without a connection besides the transaction's, for which
// its host might wait for ever.
func (e *Engine) presentIn(ctx context.Context, tx backend.Starter) (time.Time, error) {
	if clock, ok := tx.(backend.Clock); ok {
		return clock.Now(ctx)
	}
	local := e.clock.Now()
	if known := e.anchor.get(); !known.named.IsZero() {
		return known.at(local), nil
	}
	return claim.Instant(local), nil
}
