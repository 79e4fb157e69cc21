package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

// nodes are what this release can run.
func (s *service) nodes() *node.Registry {
	return node.NewRegistry().Add(
		node.Of("reserve", 1, s.reserve),
		node.Of("hold", 1, hold),
		node.Configured("charge", 2, s.charge, node.Accepts(1, withoutFee)),
		node.Of("ship", 1, s.ship),
		node.Of("notify", 1, s.notify),
	)
}

type (
	none  struct{}
	order struct {
		Amount int64 `json:"amount"`
	}
	terms struct {
		Hold  string `json:"hold"`
		Pause int64  `json:"pause"`
	}
	tariff struct {
		Currency string `json:"currency"`
		Fee      int64  `json:"fee"`
	}
	bill struct {
		Total int64 `json:"total"`
	}
	parcel struct {
		Parcel string `json:"parcel"`
	}
	notice struct {
		Notified bool `json:"notified"`
	}
)

// reserve holds the goods.
func (s *service) reserve(ctx context.Context, in order) (none, error) {
	return none{}, s.perform(ctx, "reserve", fmt.Sprint(in.Amount))
}

// approvalID is the id of the question that hold asks.
const approvalID = "approval"

// hold lets an order wait: for a person, for a time, or not at all.
func hold(ctx context.Context, in terms) (none, error) {
	switch in.Hold {
	case "approval":
		_, ok, err := node.Answered[bool](ctx, approvalID)
		if err != nil || !ok {
			return none{}, cmp.Or(err, node.Ask(node.Question{ID: approvalID, Schema: value.Value(`{"type":"boolean"}`)}))
		}
	case "pause":
		call, _ := node.FromContext(ctx)
		if until := call.PlannedAt.Add(time.Duration(in.Pause) * time.Millisecond); node.Now(ctx).Before(until) {
			return none{}, node.Snooze(until)
		}
	}
	return none{}, nil
}

// charge takes the money, and the fee.
func (s *service) charge(ctx context.Context, t tariff, in order) (bill, error) {
	total := in.Amount + t.Fee
	return bill{Total: total}, s.perform(ctx, "charge", fmt.Sprint(total, t.Currency))
}

// withoutFee makes a tariff of one of the release before, which knew no fee.
func withoutFee(config value.Value) (value.Value, error) {
	var t tariff
	if err := json.Unmarshal(config, &t); err != nil {
		return nil, err
	}
	return value.Of(t)
}

// ship sends the goods.
func (s *service) ship(ctx context.Context, in bill) (parcel, error) {
	call, _ := node.FromContext(ctx)
	return parcel{Parcel: "parcel of " + call.Run}, s.perform(ctx, "ship", fmt.Sprint(in.Total))
}

// notify tells the customer.
func (s *service) notify(ctx context.Context, in parcel) (notice, error) {
	return notice{Notified: true}, s.perform(ctx, "notify", in.Parcel)
}

// effect is what the ledger is told.
type effect struct {
	Key  string `json:"key"`
	Run  string `json:"run"`
	Kind string `json:"kind"`
	What string `json:"what"`
}

// perform does something in the world, which is a ledger: it knows by the key what it was told before.
func (s *service) perform(ctx context.Context, kind, what string) error {
	call, _ := node.FromContext(ctx)
	body, err := json.Marshal(effect{Key: node.IdempotencyKey(ctx), Run: call.Run, Kind: kind, What: what})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ledger, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the ledger answers %s", answer.Status)
	}
	return nil
}
