package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

// workerOptions are the flags of belay worker.
type workerOptions struct {
	concurrency int
	poll        time.Duration
	shutdown    time.Duration
	graphs      []string
	listen      string
}

func newWorkerCommand(t *terminal) *cobra.Command {
	var opts workerOptions
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Serve runs: drive whatever becomes due, until told to stop",
		Long: `Drive every run of built-in nodes that becomes due, whoever started it, until an interrupt or SIGTERM. Then
nothing more begins, running nodes have a while to finish, and what did not is released, for another
worker to go on with at once. Many workers may serve one place. It logs to standard error.

With --listen it answers GET /healthz while the process lives, and GET /readyz with status 200 while it
serves and the database answers, 503 otherwise.`,
		Example: `  belay worker --db sqlite:orders.db
  belay worker --db postgres://belay@db/orders --concurrency 50 --listen 127.0.0.1:8080`,
		Args: noArguments,
	}
	place := newLocation(t, cmd)
	flags := cmd.Flags()
	flags.IntVar(&opts.concurrency, "concurrency", 10, "how many runs are driven at once")
	flags.DurationVar(&opts.poll, "poll", time.Second, "how often due runs are looked for when nothing announces them")
	flags.DurationVar(&opts.shutdown, "shutdown-timeout", shutdownTimeout, "how long running nodes may take to finish when the worker is told to stop")
	flags.StringArrayVar(&opts.graphs, "graph", nil, "drive only runs of this graph; may be repeated")
	flags.StringVar(&opts.listen, "listen", "", "the address on which health is answered, as in 127.0.0.1:8080 (default: none)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return work(cmd.Context(), place, opts) }
	return exits(cmd, exitInfrastructure)
}

// work is belay worker.
func work(ctx context.Context, place *location, opts workerOptions) (err error) {
	t := place.terminal
	if dsn, _, err := place.dsn(); err != nil {
		return err
	} else if dsn == memoryDSN {
		return usage(errors.New("memory: holds nothing that somebody else could start"), "name a database: --db sqlite:FILE, or --db postgres://HOST/DATABASE")
	}
	if opts.concurrency < 1 || opts.poll <= 0 || opts.shutdown <= 0 {
		return usage(errors.New("--concurrency, --poll and --shutdown-timeout must be above 0"), "see: belay worker --help")
	}
	s, err := place.open(ctx, opening{create: true, logger: t.logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	engine, err := newServingEngine(s, opts, t.logger())
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if opts.listen != "" {
		closeServer, err := answerHealth(opts.listen, engine, t, fail)
		if err != nil {
			return &exitError{exitInfrastructure, fmt.Errorf("health cannot be answered: %w", err), "name a free address with --listen"}
		}
		defer closeServer()
	}
	if t.cut != nil {
		// A Shutdown that has no time left cuts nodes short.
		defer context.AfterFunc(t.cut, func() { _ = engine.Shutdown(t.cut) })()
	}
	t.say("serving, with room for %s at once; interrupt to stop", count(opts.concurrency, "run"))
	if err := engine.Run(ctx); err != nil {
		return err
	}
	if cause := (*serverError)(nil); errors.As(context.Cause(ctx), &cause) {
		return &exitError{exitInfrastructure, cause, "name a free address with --listen"}
	}
	stats := engine.Stats()
	t.say("stopped after %s, %s", count(int(stats.Claims), "claim"), count(int(stats.Commits), "commit"))
	return nil
}

func newServingEngine(s *store, opts workerOptions, logger *slog.Logger) (*belay.Engine, error) {
	cfg := belay.Config{
		Backend:         s.Store,
		Nodes:           std.Register(node.NewRegistry()),
		Logger:          logger,
		TTL:             claimTTL,
		MaxAttempts:     maxAttempts,
		MaxAbandons:     maxAbandons,
		Concurrency:     opts.concurrency,
		PollInterval:    opts.poll,
		ShutdownTimeout: opts.shutdown,
	}
	for _, id := range opts.graphs {
		cfg.Graphs = append(cfg.Graphs, claim.GraphFilter{ID: id})
	}
	return belay.New(cfg)
}

// logger writes records as text, or as JSON with --json.
func (t *terminal) logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if t.json {
		return slog.New(slog.NewJSONHandler(t.err, opts))
	}
	return slog.New(slog.NewTextHandler(t.err, opts))
}

// serverError is why health is not answered any more.
type serverError struct{ err error }

func (e *serverError) Error() string { return "health is not answered any more: " + e.err.Error() }
func (e *serverError) Unwrap() error { return e.err }

// answerHealth serves /healthz and /readyz until the function it answers is called.
func answerHealth(address string, engine *belay.Engine, t *terminal, fail context.CancelCauseFunc) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: healthHandler(engine), ReadHeaderTimeout: 5 * time.Second}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fail(&serverError{err})
		}
	}()
	t.say("health is answered on http://%s/healthz and /readyz", listener.Addr())
	return func() {
		_ = server.Close()
		<-over
	}, nil
}

func healthHandler(engine *belay.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := engine.Health()
		switch {
		case !h.Running:
			http.Error(w, "not serving", http.StatusServiceUnavailable)
		case h.Err != nil:
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		case h.Claimed.IsZero():
			http.Error(w, "the database has not answered yet", http.StatusServiceUnavailable)
		default:
			_, _ = fmt.Fprintf(w, "ok, driving %s\n", count(h.Held, "run"))
		}
	})
	return mux
}
