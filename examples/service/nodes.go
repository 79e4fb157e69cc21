package main

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

// nodes are what the graphs of this service use. The JSON names of the structs are state names.
func (s *service) nodes() *node.Registry {
	return node.NewRegistry().Add(
		node.Of("reserve", 1, s.reserve),
		node.Of("charge", 1, s.charge),
		node.Of("approve", 1, s.approve),
		node.Of("ship", 1, s.ship),
		node.Of("refund", 1, s.refund),
		node.Of("release", 1, s.release),
		node.Of("stop", 1, s.stop),
	)
}

type (
	none     struct{}
	purchase struct {
		Item   string `json:"item"`
		Amount int64  `json:"amount"`
	}
	receipt struct {
		Payment string `json:"payment"`
	}
	approval struct {
		Approved bool `json:"approved"`
	}
	parcel struct {
		Shipment string `json:"shipment"`
	}
	// concerned names the order when it is not the run itself.
	concerned struct {
		Order string `json:"order,omitempty"`
	}
	// withdrawal is what withdraw.yaml is started with.
	withdrawal struct {
		Order  string `json:"order"`
		Reason string `json:"reason"`
	}
)

// reserve holds the goods.
func (s *service) reserve(ctx context.Context, _ purchase) (none, error) {
	return none{}, s.perform(ctx, "reserve")
}

// charge takes the money. Now and then the provider takes it and its answer is lost: the graph says that
// the node is tried again, and the key, which is the same, that the money is taken once.
func (s *service) charge(ctx context.Context, _ purchase) (receipt, error) {
	call, _ := node.FromContext(ctx)
	err := s.perform(ctx, "charge")
	if err == nil && call.Attempt == 1 && oneInTen(call.IdempotencyKey) {
		err = errors.New("the answer of the payment provider was lost")
	}
	return receipt{Payment: "payment of " + call.Run}, err
}

// approvalID is the question's id. It is unique in an order, so whoever answers need not look it up.
const approvalID = "approval"

// approve asks a person, and goes on with the answer.
func (s *service) approve(ctx context.Context, in purchase) (approval, error) {
	answer, ok, err := node.Answered[struct {
		Approve bool `json:"approve"`
	}](ctx, approvalID)
	if err != nil || !ok {
		return approval{}, cmp.Or(err, node.Ask(node.Question{
			ID:     approvalID,
			Prompt: map[string]any{"text": "Ship this order?", "item": in.Item, "amount": in.Amount},
			Schema: value.Value(`{"type":"object","properties":{"approve":{"type":"boolean"}},"required":["approve"],"additionalProperties":false}`),
		}))
	}
	return approval{Approved: answer.Approve}, nil
}

// ship sends the goods. From here on an order cannot be withdrawn.
func (s *service) ship(ctx context.Context, _ purchase) (parcel, error) {
	call, _ := node.FromContext(ctx)
	return parcel{Shipment: "parcel of " + call.Run}, s.perform(ctx, "ship")
}

// refund gives the money back.
func (s *service) refund(ctx context.Context, in concerned) (none, error) {
	return none{}, s.undo(ctx, in, "refund", "charge")
}

// release lets the goods go.
func (s *service) release(ctx context.Context, in concerned) (none, error) {
	return none{}, s.undo(ctx, in, "release", "reserve")
}

// stop ends a withdrawn order. One that is at its end already is left as it is.
func (s *service) stop(ctx context.Context, in withdrawal) (none, error) {
	call, _ := node.FromContext(ctx)
	_, err := s.engine.For(call.Tenant).Cancel(ctx, in.Order, in.Reason)
	if errors.Is(err, belay.ErrInactiveRun) {
		err = nil
	}
	return none{}, err
}

// perform does something for the order that runs, once however often it is called for the task.
// If the order is withdrawn meanwhile, nothing is done: the node waits for the cancel that is on its way.
func (s *service) perform(ctx context.Context, kind string) error {
	call, _ := node.FromContext(ctx)
	err := s.db.transact(ctx, func(tx transaction) error {
		return recordEffect(ctx, tx, effect{key: node.IdempotencyKey(ctx), order: call.Run, kind: kind})
	})
	if errors.Is(err, errWithdrawn) {
		return node.Snooze(node.Now(ctx).Add(time.Second))
	}
	return err
}

// undo takes back what was done for an order, if it was.
func (s *service) undo(ctx context.Context, in concerned, kind, undoes string) error {
	call, _ := node.FromContext(ctx)
	return s.db.transact(ctx, func(tx transaction) error {
		return recordEffect(ctx, tx, effect{key: node.IdempotencyKey(ctx), order: cmp.Or(in.Order, call.Run), kind: kind, undoes: undoes})
	})
}

// oneInTen picks a tenth of all keys.
func oneInTen(key string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32()%10 == 0
}
