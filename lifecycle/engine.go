package lifecycle

import (
	"log/slog"
	"sync/atomic"

	"github.com/belay-run/belay/backend"
)

// Engine starts, drives and answers runs on one backend: Run drives what is due for as long as
// a service lives, Drain until nothing is due any more. It is safe for concurrent use.
// Its embedded Client works on tenantless runs.
type Engine struct {
	Client

	cfg       Config
	store     backend.Store
	features  backend.Features
	clock     Clock
	ids       IDs
	log       *slog.Logger
	scheduler scheduler

	anchor  anchor
	graphs  *graphs
	beat    *heartbeat
	watch   *watch
	starter *starter
	limits  *limits
	serving serving
	stats   counters
	outage  outage
	trouble atomic.Int32 // failures before execution in a row, over all runs
}

// New checks the whole configuration and makes an engine. It starts nothing. Everything that
// is wrong, the registry's errors included, is in the *ConfigError.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:       cfg,
		store:     cfg.Backend,
		features:  cfg.Backend.Features(),
		clock:     cfg.Clock,
		ids:       cfg.IDs,
		log:       cfg.Logger,
		scheduler: cfg.scheduler,
		graphs:    newGraphs(),
	}
	e.Client = Client{engine: e, owner: backend.Tenantless()}
	e.beat = newHeartbeat(e)
	e.watch = newWatch(e)
	e.starter = newStarter(e)
	e.outage.engine = e
	e.limits = newLimits(cfg.NodeLimits)
	return e, nil
}

// For is a client whose runs belong to one tenant, and that sees only those. A bad tenant id
// is answered by every operation of the client with *backend.ArgumentError.
func (e *Engine) For(tenant string) *Client {
	return &Client{engine: e, owner: backend.Tenant(tenant)}
}

// Stats counts what an engine did since it was made.
type Stats struct {
	// Claims are launches; Poisons are due runs that were parked instead.
	Claims, Poisons int64
	// Commits are those of driven runs; Replays of them were found applied already.
	Commits, Replays int64
	// LostClaims are runs whose claim another took, or a signal revoked, under way, or that were given up
	// because their claim could not be refreshed in time.
	LostClaims int64
	// Abandons and Releases were handed back before execution began, or by a shutdown.
	Abandons, Releases int64
	// LateResults arrived after their attempt had ended, and were dropped.
	LateResults int64
	// StuckNodes are goroutines left behind because they ignored the end of their context.
	StuckNodes int64
}

type counters struct {
	claims, poisons, commits, replays, lostClaims, abandons, releases, lateResults, stuckNodes atomic.Int64
}

// Stats is a reading of the engine's counters.
func (e *Engine) Stats() Stats {
	c := &e.stats
	return Stats{
		Claims: c.claims.Load(), Poisons: c.poisons.Load(),
		Commits: c.commits.Load(), Replays: c.replays.Load(),
		LostClaims: c.lostClaims.Load(),
		Abandons:   c.abandons.Load(), Releases: c.releases.Load(),
		LateResults: c.lateResults.Load(), StuckNodes: c.stuckNodes.Load(),
	}
}
