package postgres

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// channel is shared by every schema of a database; a notification names its schema.
	channel = "belay"
	// notifyPause is the least time between two notifications of a store. What comes
	// meanwhile is told by the next one.
	notifyPause = 10 * time.Millisecond
	// testTimeout bounds the self-test of a listening connection.
	testTimeout = 3 * time.Second
)

// notify asks for a notification. It never waits, and nothing depends on it: NOTIFY takes
// a lock of the whole database at commit, so it stands alone, after the commits it tells of,
// and one tells of many.
func (h *hub) notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.s.opts.PollOnly {
		return
	}
	h.sending.Do(func() { h.running.Go(h.send) })
	select {
	case h.pending <- struct{}{}:
	default:
	}
}

func (h *hub) send() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-h.ctx.Done():
			return
		case <-h.pending:
		}
		if err := h.tell(h.ctx, h.s.opts.Schema); err != nil && h.ctx.Err() == nil {
			h.s.opts.Logger.DebugContext(h.ctx, "belay: a notification was not sent", "error", err)
		}
		pause.Reset(notifyPause)
	}
}

func (h *hub) tell(ctx context.Context, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	_, err := h.s.pool.Exec(ctx, "select pg_notify($1::text, $2::text)", channel, payload)
	return err
}

// errDeaf: the connection takes LISTEN and hears nothing, as through a proxy that pools
// transactions.
var errDeaf = errors.New("the self-test of the listening connection was not heard")

// listen hears notifications, and while it cannot, has subscribers look by themselves.
func (h *hub) listen() {
	if h.s.opts.PollOnly {
		h.goLive()
		h.poll(h.ctx)
		return
	}
	for h.ctx.Err() == nil {
		// Polling goes on until the connection hears, and what came before that is told.
		polling, stop := context.WithCancel(h.ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.poll(polling)
		}()
		err := h.hear(func() {
			stop()
			h.goLive()
			h.broadcast()
		})
		stop()
		<-done
		if h.ctx.Err() != nil {
			return
		}
		h.goLive()
		h.broadcast()
		if errors.Is(err, errDeaf) {
			h.s.opts.Logger.WarnContext(h.ctx, "belay: notifications do not arrive, polling instead: set Options.ListenDSN to a connection "+
				"past the proxy, or Options.PollOnly", "interval", h.s.opts.PollInterval)
			h.poll(h.ctx)
			return
		}
		h.s.opts.Logger.WarnContext(h.ctx, "belay: the listening connection was lost, polling until it is back", "error", err)
		again, cancel := context.WithTimeout(h.ctx, h.s.opts.PollInterval)
		h.poll(again)
		cancel()
	}
}

func (h *hub) goLive() { h.alive.Do(func() { close(h.live) }) }

// poll has subscribers look, every interval give or take a quarter.
func (h *hub) poll(ctx context.Context) {
	interval := h.s.opts.PollInterval
	for {
		timer := time.NewTimer(interval*3/4 + rand.N(interval/2+1))
		select {
		case <-timer.C:
			h.broadcast()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// hear listens on a connection of its own until that is lost. ready is called once the
// connection was proved to hear.
func (h *hub) hear(ready func()) error {
	conn, err := h.dial()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(h.ctx, "listen "+channel, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	nonce := "self-test " + crand.Text()
	if err := h.tell(h.ctx, nonce); err != nil {
		return err
	}
	testing, cancel := context.WithTimeout(h.ctx, testTimeout)
	defer cancel()
	for heard := false; !heard; {
		n, err := conn.WaitForNotification(testing)
		switch {
		case testing.Err() != nil && h.ctx.Err() == nil:
			return errDeaf
		case err != nil:
			return err
		}
		heard = n.Payload == nonce
	}
	ready()
	for {
		n, err := conn.WaitForNotification(h.ctx)
		if err != nil {
			return err
		}
		if n.Payload == h.s.opts.Schema {
			h.broadcast()
		}
	}
}

func (h *hub) dial() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(h.ctx, testTimeout)
	defer cancel()
	config := h.s.pool.Config().ConnConfig.Copy()
	if dsn := h.s.opts.ListenDSN; dsn != "" {
		var err error
		if config, err = pgx.ParseConfig(dsn); err != nil {
			return nil, errors.New("Options.ListenDSN cannot be read: write it as postgres://user:password@host:port/database")
		}
	}
	return pgx.ConnectConfig(ctx, config)
}
