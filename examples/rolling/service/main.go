// Command service is the next release of a service that is rolled: it takes orders over HTTP and drives
// them with belay, beside processes of the release before. That one is on the line of history that the
// test builds it from.
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

	"github.com/belay-run/belay"
)

// config is what an operator chooses.
type config struct {
	address, db, schema, ledger string
	ttl, poll, backoff          time.Duration
	abandons, format            int
}

func main() {
	var cfg config
	flag.StringVar(&cfg.address, "addr", "127.0.0.1:0", "the address to serve on")
	flag.StringVar(&cfg.db, "db", "", "the database: sqlite:FILE or postgres://...")
	flag.StringVar(&cfg.schema, "schema", "belay", "the engine's schema on PostgreSQL")
	flag.StringVar(&cfg.ledger, "ledger", "", "where effects are reported to, a URL")
	flag.DurationVar(&cfg.ttl, "ttl", 30*time.Second, "how soon the orders of a process that died are taken over")
	flag.DurationVar(&cfg.poll, "poll", time.Second, "how often due orders are looked for")
	flag.DurationVar(&cfg.backoff, "backoff", 5*time.Second, "how long an order rests that this process cannot run")
	flag.IntVar(&cfg.abandons, "abandons", 20, "how often in a row an order is handed back before it is poisoned")
	flag.IntVar(&cfg.format, "write-format", 0, "the document format to write, for as long as older processes read; 0 is the newest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, cfg); err != nil {
		slog.Error("the service ended", "error", err)
		os.Exit(1)
	}
}

// drainTimeout bounds the shutdown.
const drainTimeout = 30 * time.Second

// serve takes orders and drives them until ctx ends.
func serve(ctx context.Context, cfg config) (err error) {
	store, closeStore, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	s := &service{ledger: cfg.ledger}
	s.engine, err = belay.New(belay.Config{
		Backend: store, Nodes: s.nodes(),
		TTL: cfg.ttl, PollInterval: cfg.poll, AbandonBackoff: cfg.backoff, MaxAbandons: cfg.abandons,
	})
	if err != nil {
		return err
	}
	if err := s.publish(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	running := context.WithoutCancel(ctx) // the engine goes on while the last requests are answered
	ended := make(chan error, 2)
	go func() { ended <- s.engine.Run(running) }()
	go func() { ended <- server.Serve(listener) }()
	slog.Info("serving", "address", listener.Addr().String(), "release", release)

	select {
	case <-ctx.Done():
	case err = <-ended: // before its time
	}
	drain, cancel := context.WithTimeout(running, drainTimeout)
	defer cancel()
	return errors.Join(err, server.Shutdown(drain), s.engine.Shutdown(drain))
}
