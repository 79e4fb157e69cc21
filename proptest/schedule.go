package proptest

import (
	"context"
	"iter"
)

// schedule lets operations of one store take turns: each is a coroutine that stops wherever
// the store yields.
type schedule struct {
	turn *coroutine // whose turn it is; nil beside a schedule
}

// yield is what the store calls between the steps of an operation.
func (s *schedule) yield(point string) {
	if c := s.turn; c != nil && c.pass != nil {
		c.point = point
		c.pass(struct{}{})
	}
}

// coroutine is an operation under way.
type coroutine struct {
	op    *operation
	point string // where it stopped
	pass  func(struct{}) bool
	next  func() (struct{}, bool)
	stop  func()
}

// begin makes a coroutine of an operation, without taking a step.
func (s *schedule) begin(ctx context.Context, op *operation) *coroutine {
	c := &coroutine{op: op}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.pass = yield
		op.ask(ctx)
		c.pass = nil
	})
	return c
}

// step goes on to the next point at which the store yields. It is false when the operation
// came to its end instead.
func (s *schedule) step(c *coroutine) (more bool) {
	s.turn = c
	defer func() { s.turn = nil }()
	_, more = c.next()
	return more
}

// drop ends what is still under way, without anybody hearing of it.
func (s *schedule) drop(all []*coroutine) {
	for _, c := range all {
		if c != nil {
			c.pass = nil
			c.stop()
		}
	}
}
