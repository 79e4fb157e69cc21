package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
)

// readers is a pool of connections that cannot write: opened mode=ro, and query_only.
type readers struct {
	dial func(ctx context.Context) (*conn, error)

	mu     sync.Mutex
	idle   []*conn
	closed bool
	places chan struct{} // one for each connection that may be in use
}

func newReaders(n int, dial func(context.Context) (*conn, error)) *readers {
	return &readers{dial: dial, places: make(chan struct{}, n)}
}

// use lends a connection to fn.
func (p *readers) use(ctx context.Context, fn func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.places }()
	c, err := p.get(ctx)
	if err != nil {
		return err
	}
	err = fn(c)
	p.put(c, err)
	return err
}

// keepOut waits for the readers to leave and lets none in before release is called. held is
// false, and nobody is kept out, when one stays longer than patience.
func (p *readers) keepOut(patience time.Duration) (release func(), held bool) {
	late := time.NewTimer(patience)
	defer late.Stop()
	taken := 0
	release = func() {
		for range taken {
			<-p.places
		}
	}
	for taken < cap(p.places) {
		select {
		case p.places <- struct{}{}:
			taken++
		case <-late.C:
			release()
			return nil, false
		}
	}
	return release, true
}

// snapshot lends a connection on which every statement of fn sees the same state.
func (p *readers) snapshot(ctx context.Context, fn func(*conn) error) error {
	return p.use(ctx, func(c *conn) error {
		background := context.Background()
		if _, err := c.exec(background, stBeginRead); err != nil {
			return err
		}
		err := fn(c)
		_, end := c.exec(background, stRollback)
		return errors.Join(err, end)
	})
}

func (p *readers) get(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, backend.ErrClosed
	}
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return p.dial(ctx)
}

// put takes a connection back, unless SQLite failed on it: a fresh one starts clean.
func (p *readers) put(c *conn, err error) {
	p.mu.Lock()
	keep := !p.closed && primary(err) == 0
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.close()
	}
}

// close waits for nobody: connections in use are closed when they come back.
func (p *readers) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, c := range idle {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
