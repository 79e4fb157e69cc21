package sqlite

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	code "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/backend"
)

// operation is one caller's part of a group.
type operation struct {
	name string
	// run does the work inside the group's transaction. It may be called again on a
	// transaction that begins anew, careful then, and so sets its results from scratch
	// each time. Careful is asked to look before it writes, because writing blindly has
	// just failed. An error means that nothing of it may stay.
	run func(c *conn, careful bool) error
	// wakes: others may have something to do once this is committed.
	wakes bool

	err  error
	done chan struct{}
	// deadline is until when it waits for other writers.
	deadline time.Time
}

// writer is the one goroutine that writes. What callers hand in while a transaction is
// being committed shares the next one: nobody waits for company, and nobody flushes the
// disk alone when others could come along.
type writer struct {
	conn     *conn
	timeout  time.Duration
	maxGroup int
	wake     func()
	inPlace  func() error // fails when the file is no longer the one under its name
	wal      *wal

	mu      sync.Mutex
	queue   []*operation
	stopped bool
	arrived chan struct{} // has a token when the queue may have grown
	closing chan struct{}
	ended   chan struct{}
}

func startWriter(c *conn, opts Options, wake func(), inPlace func() error, log *wal) *writer {
	w := &writer{
		conn: c, timeout: opts.BusyTimeout, maxGroup: opts.MaxGroup, wake: wake, inPlace: inPlace, wal: log,
		arrived: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go w.loop()
	return w
}

// do runs one operation and waits for its answer. While the operation is still queued,
// ctx ends the wait; once it is in a group its answer is near, and worth having.
func (w *writer) do(ctx context.Context, op *operation) error {
	w.submit(op)
	return w.await(ctx, op)
}

// submit hands operations in; those of one call stay in their order.
func (w *writer) submit(ops ...*operation) {
	deadline := time.Now().Add(w.timeout)
	for _, op := range ops {
		op.done = make(chan struct{})
		op.deadline = deadline
	}
	w.mu.Lock()
	stopped := w.stopped
	if !stopped {
		w.queue = append(w.queue, ops...)
	}
	w.mu.Unlock()
	if stopped {
		answer(ops, backend.ErrClosed)
		return
	}
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

func (w *writer) await(ctx context.Context, op *operation) error {
	select {
	case <-op.done:
		return op.err
	case <-ctx.Done():
	}
	if w.withdraw(op) {
		return context.Cause(ctx)
	}
	<-op.done
	return op.err
}

// withdraw takes an operation back, if no group has it yet.
func (w *writer) withdraw(op *operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, queued := range w.queue {
		if queued == op {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			return true
		}
	}
	return false
}

// take removes up to n operations from the queue.
func (w *writer) take(n int) []*operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, len(w.queue))
	taken := append([]*operation(nil), w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	return taken
}

func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// stop ends the goroutine after the group it is at; what is queued is answered ErrClosed.
func (w *writer) stop() {
	w.mu.Lock()
	again := w.stopped
	w.stopped = true
	w.mu.Unlock()
	if !again {
		close(w.closing)
	}
	<-w.ended
}

func (w *writer) loop() {
	defer close(w.ended)
	defer func() { answer(w.take(w.waiting()), backend.ErrClosed) }()
	for {
		if w.waiting() == 0 {
			select {
			case <-w.arrived:
			case <-w.closing:
				return
			}
			continue
		}
		select {
		case <-w.closing:
			return
		default:
		}
		if err := w.begin(); err != nil {
			continue // whoever could wait no longer has been told
		}
		w.group()
		w.wal.keep(w.conn)
	}
}

// begin takes the write lock. While another process has it, it asks again and again,
// and answers those whose time is up.
func (w *writer) begin() error {
	var wait backoff
	for {
		point("begin.before")
		_, err := w.conn.exec(context.Background(), stBegin)
		if err == nil {
			point("begin.after")
			return nil
		}
		if !isBusy(err) {
			answer(w.take(w.waiting()), fail("begin", err, false))
			return err
		}
		if w.expire(err); w.waiting() == 0 {
			return err
		}
		if wait.pause(w.closing) != nil {
			return err
		}
	}
}

// expire answers the operations whose deadline has passed.
func (w *writer) expire(cause error) {
	now := time.Now()
	w.mu.Lock()
	var late []*operation
	kept := w.queue[:0]
	for _, op := range w.queue {
		if now.After(op.deadline) {
			late = append(late, op)
		} else {
			kept = append(kept, op)
		}
	}
	w.queue = kept
	w.mu.Unlock()
	answer(late, &backend.InfrastructureError{
		Op: "wait for another writer of the file", Nature: backend.Transient, Err: errors.Join(backend.ErrBusy, cause),
	})
}

// group runs what is queued, and what arrives meanwhile, in the transaction that has
// begun, and commits it.
func (w *writer) group() {
	var group []*operation
	for len(group) < w.maxGroup {
		ops := w.take(w.maxGroup - len(group))
		if len(ops) == 0 {
			break
		}
		for i, op := range ops {
			before := w.conn.writes
			op.err = op.run(w.conn, false)
			group = append(group, op)
			if op.err != nil && (w.conn.writes != before || mayHaveEnded(op.err)) {
				// It left half of its work behind, or SQLite gave the transaction up. Undoing
				// a whole group is rare, and cheaper than savepoints in every group.
				w.again(append(group, ops[i+1:]...))
				return
			}
		}
	}
	w.finish(group)
}

// again undoes the transaction and runs the group in a new one, each operation in a
// savepoint, so that those that fail leave nothing and the others stay.
func (w *writer) again(group []*operation) {
	if err := w.rollback(); err != nil {
		answer(group, fail("roll back", err, false))
		return
	}
	if err := w.beginFor(group); err != nil {
		return
	}
	for _, op := range group {
		if err := w.guarded(op); err != nil {
			// The transaction itself is gone, and everybody's work with it.
			_ = w.rollback()
			answer(group, fail("savepoint", err, false))
			return
		}
	}
	w.finish(group)
}

// beginFor begins again for a group that has left the queue, within its patience.
func (w *writer) beginFor(group []*operation) error {
	var wait backoff
	for {
		_, err := w.conn.exec(context.Background(), stBegin)
		if err == nil {
			return nil
		}
		late := time.Now().After(group[0].deadline)
		if !isBusy(err) || late || wait.pause(w.closing) != nil {
			answer(group, fail("begin", err, false))
			return err
		}
	}
}

func (w *writer) guarded(op *operation) error {
	ctx := context.Background()
	if _, err := w.conn.exec(ctx, stSavepoint); err != nil {
		return err
	}
	op.err = op.run(w.conn, true)
	if op.err != nil {
		if _, err := w.conn.exec(ctx, stSavepointRollback); err != nil {
			if mayHaveEnded(op.err) {
				err = op.err // SQLite has rolled everything back because of it, savepoints included
			}
			return err
		}
	}
	_, err := w.conn.exec(ctx, stSavepointRelease)
	return err
}

// finish commits and answers everybody.
func (w *writer) finish(group []*operation) {
	point("commit.before")
	if err := w.inPlace(); err != nil {
		_ = w.rollback()
		answer(group, err)
		return
	}
	_, err := w.conn.exec(context.Background(), stCommit)
	if err != nil {
		err = fail("commit", err, true)
		_ = w.rollback()
		for _, op := range group {
			op.err = err
			close(op.done)
		}
		return
	}
	point("commit.after")
	wakes := false
	for _, op := range group {
		op.err = fail(op.name, op.err, false)
		wakes = wakes || op.wakes && op.err == nil
		close(op.done)
	}
	if wakes {
		w.wake()
	}
}

// mayHaveEnded: SQLite may have rolled the whole transaction back by itself. A refused
// constraint ends its statement only.
func mayHaveEnded(err error) bool {
	c := primary(err)
	return c != 0 && c != code.SQLITE_CONSTRAINT
}

// rollback ends the transaction; it may have been rolled back by SQLite already.
func (w *writer) rollback() error {
	_, err := w.conn.exec(context.Background(), stRollback)
	if err != nil && primary(err) == code.SQLITE_ERROR {
		return nil // no transaction is active
	}
	return err
}

func answer(ops []*operation, err error) {
	for _, op := range ops {
		op.err = err
		close(op.done)
	}
}

// backoff is how long to wait before asking for a lock again: short at first, since
// transactions are, and never so long that a turn is missed.
type backoff struct{ next time.Duration }

func (b *backoff) pause(stop <-chan struct{}) error {
	b.next = min(max(b.next*3/2, 200*time.Microsecond), 5*time.Millisecond)
	t := time.NewTimer(b.next/2 + rand.N(b.next))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-stop:
		return errStop
	}
}
