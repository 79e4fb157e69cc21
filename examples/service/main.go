// Command service takes orders over HTTP and drives them with belay, on SQLite or PostgreSQL.
// Any number of replicas may serve one database:
//
//	go run ./examples/service
//	go run ./examples/service -db postgres://user@host/orders
//
// README.md in this folder says what to try, and where to look.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what an operator chooses.
type config struct {
	address string
	db      string
	ttl     time.Duration
	poll    time.Duration
}

func main() {
	var cfg config
	flag.StringVar(&cfg.address, "addr", "127.0.0.1:8080", "the address to serve on")
	flag.StringVar(&cfg.db, "db", "sqlite:data/orders.db", "the database: sqlite:FILE or postgres://...")
	flag.DurationVar(&cfg.ttl, "ttl", 30*time.Second, "how soon the orders of a replica that died are taken over")
	flag.DurationVar(&cfg.poll, "poll", time.Second, "how often due orders are looked for when nothing announces them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := serve(ctx, cfg); err != nil {
		slog.Error("the service ended", "error", err)
		os.Exit(1)
	}
}

const (
	// requestTimeout bounds every request, so that a caller hears of trouble rather than nothing.
	requestTimeout = 8 * time.Second
	// drainTimeout bounds the shutdown: of the requests, and after them of the engine.
	drainTimeout = 20 * time.Second
)

// serve takes orders and drives them until ctx ends.
func serve(ctx context.Context, cfg config) (err error) {
	db, err := openDatabase(ctx, cfg.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	s, err := newService(ctx, db, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}

	// The engine does not descend from ctx: it goes on while the last requests are answered.
	running := context.WithoutCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- s.engine.Run(running) }()
	go func() { ended <- server.Serve(listener) }()
	slog.Info("serving", "address", listener.Addr().String())

	select {
	case <-ctx.Done():
	case err = <-ended: // before its time
	}
	drain, cancel := context.WithTimeout(running, drainTimeout)
	defer cancel()
	err = errors.Join(err, server.Shutdown(drain), s.engine.Shutdown(drain))
	slog.Info("stopped", "claims", s.engine.Stats().Claims, "commits", s.engine.Stats().Commits)
	return err
}
