package main

import (
	"encoding/json"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// orderView is an order as callers see it.
type orderView struct {
	ID        string     `json:"id"`
	Item      string     `json:"item"`
	Amount    int64      `json:"amount"`
	CreatedAt string     `json:"created_at"`
	Status    run.Status `json:"status"`
	// Withdrawn: the customer cancelled it. What it held is given back, if it is not yet.
	Withdrawn bool `json:"withdrawn,omitempty"`

	// Step counts up, Next is what is at work or waits in it.
	Step int64    `json:"step"`
	Next []string `json:"next,omitempty"`
	// WaitsFor is the question that somebody has to answer.
	WaitsFor *questionView `json:"waits_for,omitempty"`
	// Wakes is when it goes on by itself, after a failed attempt say.
	Wakes *time.Time `json:"wakes,omitempty"`
	// Stuck is why an operator has to look after it.
	Stuck string `json:"stuck,omitempty"`

	// Done is what was done in the world for it; to undo something is to do something, too.
	Done    []effectView    `json:"done,omitempty"`
	Output  json.RawMessage `json:"output,omitempty"`
	Failure *failureView    `json:"failure,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

type questionView struct {
	Question json.RawMessage `json:"question"`
	Schema   json.RawMessage `json:"schema,omitempty"`
	Since    time.Time       `json:"since"`
}

type effectView struct {
	Kind  string `json:"kind"`
	Key   string `json:"key"`
	Calls int    `json:"calls"`
}

type failureView struct {
	Node    string `json:"node,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// viewOf shows an order and its run.
func viewOf(o order, r *belay.Run) orderView {
	v := orderView{
		ID: o.id, Item: o.item, Amount: o.amount, CreatedAt: o.createdAt, Withdrawn: o.withdrawn,
		Status: r.Status, Step: r.Step, Next: r.Pending, Stuck: r.Poison.Reason,
		Output: r.Output, Reason: r.Reason,
	}
	for _, q := range r.OpenInterrupts() {
		v.WaitsFor = &questionView{Question: q.Question, Schema: q.Schema, Since: q.RequestedAt}
	}
	if time.Until(r.Wake) > 0 {
		v.Wakes = &r.Wake
	}
	if f := r.Failure; f != nil {
		v.Failure = &failureView{Node: f.Node, Code: f.Code, Message: f.Message}
	}
	for _, e := range o.effects {
		v.Done = append(v.Done, effectView{Kind: e.kind, Key: e.key, Calls: e.calls})
	}
	return v
}

// listView is a page of orders, newest first.
type listView struct {
	Orders []rowView `json:"orders"`
	// Before is given to get the next page; empty: there is none.
	Before backend.Cursor `json:"before,omitzero"`
}

type rowView struct {
	ID        string     `json:"id"`
	Item      string     `json:"item"`
	Amount    int64      `json:"amount"`
	CreatedAt string     `json:"created_at"`
	Status    run.Status `json:"status"`
	Withdrawn bool       `json:"withdrawn,omitempty"`
	Stuck     string     `json:"stuck,omitempty"`
}

// idsOf lists the runs of a page.
func idsOf(page backend.Page) (ids []string) {
	for _, r := range page.Runs {
		ids = append(ids, r.Run)
	}
	return ids
}

// listOf shows a page of runs with their orders.
func listOf(page backend.Page, rows map[string]order) listView {
	v := listView{Orders: []rowView{}}
	for _, r := range page.Runs {
		o := rows[r.Run]
		v.Orders = append(v.Orders, rowView{
			ID: r.Run, Item: o.item, Amount: o.amount, CreatedAt: o.createdAt, Status: r.Status, Withdrawn: o.withdrawn, Stuck: r.Poison.Reason,
		})
	}
	if page.HasMore {
		v.Before = page.Next
	}
	return v
}
