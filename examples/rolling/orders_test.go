//go:build unix

package rolling

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// request and placed are what the service takes and gives.
type (
	request struct {
		Key   string `json:"key"`
		Graph string `json:"graph,omitempty"`
		Input input  `json:"input"`
	}
	input struct {
		Amount int64  `json:"amount"`
		Hold   string `json:"hold"`
		Pause  int64  `json:"pause"`
	}
	placed struct {
		Run   string `json:"run"`
		Graph string `json:"graph"`
	}
)

// order is one that was placed.
type order struct {
	input
	placed
	kept bool // it is approved at the end
}

// orders are all that were placed, and who places them.
type orders struct {
	fleet []*process
	next  atomic.Int64

	mu         sync.Mutex
	placed     []*order
	unapproved []*order
	stop       chan struct{}
	customers  sync.WaitGroup
}

// patterns are what orders wait for, in turn.
var patterns = []order{
	{},
	{},
	{input: input{Hold: "pause", Pause: 700}},
	{},
	{input: input{Hold: "approval"}},
	{},
	{},
	{input: input{Hold: "approval"}, kept: true},
}

// trade places orders at every process, one after the other, and approves those that ask, until stop is closed.
func (o *orders) trade(t *testing.T) {
	o.stop = make(chan struct{})
	every := func(pause time.Duration, do func()) {
		o.customers.Go(func() {
			for ticks := time.NewTicker(pause); ; {
				select {
				case <-o.stop:
					ticks.Stop()
					return
				case <-ticks.C:
					do()
				}
			}
		})
	}
	for range 3 {
		every(120*time.Millisecond, func() {
			n := o.next.Load()
			o.place(t, patterns[int(n)%len(patterns)], int(n)%len(o.fleet), "")
		})
	}
	every(100*time.Millisecond, func() { o.approve(false) })
}

// place places an order at the process in a slot, or at any other that answers. The key makes sure that
// it is one order.
func (o *orders) place(t *testing.T, like order, slot int, graph string) *order {
	n := o.next.Add(1)
	placed := &order{input: like.input, kept: like.kept}
	placed.Amount = n
	r := request{Key: fmt.Sprint("order ", n), Graph: graph, Input: placed.input}
	for deadline := time.Now().Add(patience); ; slot++ {
		err := o.fleet[slot%len(o.fleet)].call("POST", "/orders", r, &placed.placed)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("an order is placed nowhere: %v", err)
			return placed
		}
		time.Sleep(20 * time.Millisecond)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.placed = append(o.placed, placed)
	if placed.Hold == "approval" {
		o.unapproved = append(o.unapproved, placed)
	}
	return placed
}

// approve answers the questions that are asked; with all, also those of the orders that are kept. It
// answers how many are still to be answered.
func (o *orders) approve(all bool) (left int) {
	o.mu.Lock()
	todo := o.unapproved
	o.unapproved = nil
	o.mu.Unlock()
	var open []*order
	for i, one := range todo {
		if one.kept && !all || o.fleet[i%len(o.fleet)].call("POST", "/orders/"+one.Run+"/approve", nil, nil) != nil {
			open = append(open, one)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unapproved = append(o.unapproved, open...)
	return len(o.unapproved)
}

// count is how many were placed.
func (o *orders) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.placed)
}

// of are the orders that are asked about.
func (o *orders) of(match func(*order) bool) (found []*order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.placed {
		if match(one) {
			found = append(found, one)
		}
	}
	return found
}
