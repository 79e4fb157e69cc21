package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	//go:embed order.yaml
	orderYAML []byte
	//go:embed withdraw.yaml
	withdrawYAML []byte
)

// keyWindow is for how long an Idempotency-Key is remembered at least.
const keyWindow = 7 * 24 * time.Hour

// errKeyReused: the Idempotency-Key belongs to another order.
var errKeyReused = errors.New("the Idempotency-Key was used for another order: take a new one for each order")

// service is what the HTTP handlers call.
type service struct {
	db       database
	engine   *belay.Engine
	stopping context.Context // ended by the first signal

	order, withdrawal *belay.Graph
	published         sync.Map // graphOf to belay.GraphRef
}

// graphOf is a graph of one tenant.
type graphOf struct{ tenant, graph string }

// newService makes the service and its engine, and starts neither.
func newService(stopping context.Context, db database, cfg config) (*service, error) {
	s := &service{db: db, stopping: stopping}
	var err error
	if s.order, err = graph.ParseYAML(orderYAML); err != nil {
		return nil, err
	}
	if s.withdrawal, err = graph.ParseYAML(withdrawYAML); err != nil {
		return nil, err
	}
	s.engine, err = belay.New(belay.Config{
		Backend:      db.store(),
		Nodes:        s.nodes(),
		TTL:          cfg.ttl,
		PollInterval: cfg.poll,
		Concurrency:  16,
		// A payment provider has limits of its own.
		NodeLimits: map[string]int{"charge": 8},
	})
	return s, err
}

// publish publishes a graph for a tenant, when this process has not yet: graphs belong to their tenant.
func (s *service) publish(ctx context.Context, tenant string, doc *belay.Graph) (belay.GraphRef, error) {
	key := graphOf{tenant, doc.ID}
	if ref, ok := s.published.Load(key); ok {
		return ref.(belay.GraphRef), nil
	}
	ref, err := s.engine.For(tenant).Publish(ctx, doc)
	if err == nil {
		s.published.Store(key, ref)
	}
	return ref, err
}

// place starts an order. The row and the run commit together, or neither does. With a key that was
// used before it answers the order of that time.
func (s *service) place(ctx context.Context, tenant, key string, request json.RawMessage) (*belay.Run, error) {
	ref, err := s.publish(ctx, tenant, s.order)
	if err != nil {
		return nil, err
	}
	var r *belay.Run
	err = s.db.transact(ctx, func(tx transaction) (err error) {
		r, err = s.engine.For(tenant).StartIn(ctx, tx.starter(), ref, request, belay.StartOptions{Key: key, Window: keyWindow})
		if err != nil {
			return err // the graph's schemas have judged the request
		}
		// The canonical text, so that the same request in another notation is the same.
		canonical, err := value.Of(request)
		if err != nil {
			return err
		}
		if !r.Existing {
			return insertOrder(ctx, tx, tenant, r, value.Hash(canonical))
		}
		first, err := readOrder(ctx, tx, tenant, r.ID)
		if err == nil && first.request != value.Hash(canonical) {
			err = errKeyReused
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.engine.Wake() // the engine cannot see the host's commit
	return r, nil
}

// decide answers the question whether an order is approved. The question's own schema judges the answer.
func (s *service) decide(ctx context.Context, tenant, id string, answer json.RawMessage) error {
	if _, err := readOrder(ctx, s.db, tenant, id); err != nil {
		return err
	}
	_, err := s.engine.For(tenant).Resolve(ctx, id, approvalID, answer)
	return err
}

// withdraw cancels an order and has given back what it held. It is safe to repeat.
func (s *service) withdraw(ctx context.Context, tenant, id, reason string) (*belay.Run, error) {
	client := s.engine.For(tenant)
	r, err := client.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Status == run.Done {
		return nil, run.ErrInactiveRun
	}
	ref, err := s.publish(ctx, tenant, s.withdrawal)
	if err != nil {
		return nil, err
	}
	// The mark and the run that acts on it commit together: from here on it will happen.
	err = s.db.transact(ctx, func(tx transaction) error {
		first, err := markWithdrawn(ctx, tx, tenant, id)
		if err != nil || !first {
			return err
		}
		_, err = client.StartIn(ctx, tx.starter(), ref, withdrawal{Order: id, Reason: reason}, belay.StartOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.engine.Wake()
	if r.Status == run.Failed {
		return r, nil // nothing is left to cancel, only to give back
	}
	return client.Cancel(ctx, id, reason) // what the new run does first; the caller need not wait for it
}

// see reads an order. With wait above 0 it waits until the order is finished or asks, so long at most.
func (s *service) see(ctx context.Context, tenant, id string, wait time.Duration) (order, *belay.Run, error) {
	client := s.engine.For(tenant)
	if wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		defer context.AfterFunc(s.stopping, cancel)() // a shutdown waits for nobody who waits
		var still *belay.AwaitError
		if _, err := client.Await(ctx, id); err != nil && !errors.As(err, &still) && !errors.Is(err, belay.ErrPoisoned) {
			return order{}, nil, err
		}
	}
	r, err := client.Inspect(ctx, id)
	if err != nil {
		return order{}, nil, err
	}
	o, err := readOrder(ctx, s.db, tenant, id)
	if err != nil {
		return order{}, nil, err
	}
	o.effects, err = readEffects(ctx, s.db, id)
	return o, r, err
}
