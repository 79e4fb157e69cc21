// Package belay runs graphs durably inside Go services: nodes are typed Go functions, graphs
// are data, and every step of a run is one atomic commit to a backend. When a process falls, the
// run hangs on its last checkpoint, and another process goes on from there.
//
// An Engine is made with New from a backend and the node types this binary can run. Its
// methods publish graphs, start runs, drive what is due (Run), and answer what runs ask. What an
// engine does is told by the packages it is made of: graph (documents), node (the
// code that does the work), run (the run document and its machine), backend (stores).
package belay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// What a user meets. Each is documented where it is defined.
type (
	// Engine starts, drives and answers runs on one backend.
	Engine = lifecycle.Engine
	// Client is one owner's view of an engine.
	Client = lifecycle.Client
	// Config is everything an engine needs.
	Config = lifecycle.Config
	// Run is a run as callers see it.
	Run = lifecycle.Run
	// StartOptions of one start.
	StartOptions = lifecycle.StartOptions
	// NewRun and Started are one run of StartMany, and what became of it.
	NewRun  = lifecycle.NewRun
	Started = lifecycle.Started
	// MigrateOptions of one migration, and Mapping, what it makes of renamed parts.
	MigrateOptions = lifecycle.MigrateOptions
	Mapping        = run.Mapping
	// MigrationError lists why a run cannot move to a version of its graph.
	MigrationError = run.MigrationError
	// DrainOptions narrows a drain.
	DrainOptions = lifecycle.DrainOptions
	// Drained counts what a drain did.
	Drained = lifecycle.Drained
	// Stats counts what an engine did.
	Stats = lifecycle.Stats
	// Health is how a running engine fares.
	Health = lifecycle.Health
	// Retention says which finished runs go.
	Retention = lifecycle.Retention
	// Abandon is a run that was handed back because it cannot begin here.
	Abandon = lifecycle.Abandon
	// CompatOptions and Compatibility are those of Compat.
	CompatOptions = lifecycle.CompatOptions
	Compatibility = lifecycle.Compatibility
	// Observer is told what an engine does, for metrics and traces.
	Observer = lifecycle.Observer
	// Status of a run; the constants below.
	Status = run.Status
	// Query selects the runs of a list, Page is what it answers, of Summaries, and Cursor is where
	// the next page begins, which has a text form.
	Query   = backend.Query
	Page    = backend.Page
	Summary = backend.Summary
	Cursor  = backend.Cursor
	// EventQuery selects events of a run, and EventPage is what it answers.
	EventQuery = backend.EventQuery
	EventPage  = backend.EventPage
	// InfrastructureError is trouble with a backend; its Nature says whether repetition may help.
	InfrastructureError = backend.InfrastructureError
	// Graph is a graph document, as ReadGraph reads it or a program builds it.
	Graph = graph.Document
	// GraphRef names one version of a published graph.
	GraphRef = graph.Ref
	// Diagnostics is every problem of a graph document; Publish answers it as an error.
	Diagnostics = graph.Diagnostics
	// PoisonedError says that a run is parked until RetryPoisoned frees it.
	PoisonedError = lifecycle.PoisonedError
	// AwaitError says that a context ended before the awaited run came to rest.
	AwaitError = lifecycle.AwaitError
	// ConfigError lists everything that is wrong with a Config.
	ConfigError = lifecycle.ConfigError
)

// The statuses of a run that is stored.
const (
	Running   = run.Running
	Waiting   = run.Waiting
	Done      = run.Done
	Failed    = run.Failed
	Cancelled = run.Cancelled
)

// The errors that a program is likely to tell apart, with errors.Is.
var (
	// ErrInvalidArgument: an argument was refused before anything was looked up.
	ErrInvalidArgument = backend.ErrInvalidArgument
	// ErrInvalidConfig is matched by *ConfigError.
	ErrInvalidConfig = lifecycle.ErrInvalidConfig
	// ErrInvalidInput: a run's input does not fit its graph.
	ErrInvalidInput = run.ErrInvalidInput
	// ErrNotFound: absent, or another owner's.
	ErrNotFound = backend.ErrNotFound
	// ErrConflict: the run id is taken.
	ErrConflict = backend.ErrConflict
	// ErrInactiveRun: the run is finished.
	ErrInactiveRun = run.ErrInactiveRun
	// ErrAlreadyResolved: the interrupt was answered before.
	ErrAlreadyResolved = run.ErrAlreadyResolved
	// ErrMigration is matched by *MigrationError.
	ErrMigration = run.ErrMigration
	// ErrNoInterrupt: the run never asked that.
	ErrNoInterrupt = run.ErrNoInterrupt
	// ErrInvalidAnswer: the answer does not fit what was asked.
	ErrInvalidAnswer = run.ErrInvalidAnswer
	// ErrPoisoned is matched by *PoisonedError.
	ErrPoisoned = lifecycle.ErrPoisoned
	// ErrRunning and ErrStopped: an engine runs once.
	ErrRunning = lifecycle.ErrRunning
	ErrStopped = lifecycle.ErrStopped
	// ErrClaimLost, ErrRunCancelled and ErrShutdown are why the context of a node ended
	// (context.Cause), besides its own timeout (context.DeadlineExceeded).
	ErrClaimLost    = lifecycle.ErrClaimLost
	ErrRunCancelled = lifecycle.ErrRunCancelled
	ErrShutdown     = lifecycle.ErrShutdown
	// ErrUnreadableGraph is matched by the errors of ReadGraph.
	ErrUnreadableGraph = errors.New("belay: the graph cannot be read")
)

// New checks the whole configuration and makes an engine. It starts nothing. Everything that
// is wrong, the errors of the node registry included, is in the *ConfigError.
func New(cfg Config) (*Engine, error) { return lifecycle.New(cfg) }

// Compat tells, for every graph version that unfinished runs are of, whether an engine with these
// nodes can run it: a gate for a deploy. It is documented in package lifecycle.
func Compat(ctx context.Context, store backend.Store, nodes *node.Registry, opts CompatOptions) ([]Compatibility, error) {
	return lifecycle.Compat(ctx, store, nodes, opts)
}

// ReadGraph reads a graph document from a file: YAML when its name ends in .yaml or .yml,
// JSON otherwise. It does not publish it. What is wrong with the document is in the
// Diagnostics the error wraps.
func ReadGraph(path string) (*Graph, error) {
	raw, yaml, err := readFile(path)
	if err != nil {
		return nil, err
	}
	parse := graph.Parse
	if yaml {
		parse = graph.ParseYAML
	}
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadableGraph, path, err)
	}
	return doc, nil
}

// ParseGraph reads a graph document from memory, an embedded file's say: YAML, of which JSON is a
// part. Otherwise it is as ReadGraph.
func ParseGraph(raw []byte) (*Graph, error) {
	doc, err := graph.ParseYAML(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadableGraph, err)
	}
	return doc, nil
}

// CheckGraph reads a file as ReadGraph does, and lists everything that is wrong with the graph document
// in it, against the node types of a catalog: a node.Registry, or a manifest of one. The error is
// for a file that cannot be read, and wraps ErrUnreadableGraph.
func CheckGraph(path string, known graph.Catalog) (Diagnostics, error) {
	raw, yaml, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if yaml {
		return graph.CheckYAML(raw, known), nil
	}
	return graph.Check(raw, known), nil
}

// readFile reads as much of a graph's file as a graph may have, and a byte more, so that one that is
// too large is seen to be. yaml is what the file's name says.
func readFile(path string) (raw []byte, yaml bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreadableGraph, err)
	}
	defer file.Close()
	if raw, err = io.ReadAll(io.LimitReader(file, graph.MaxDocument+1)); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreadableGraph, err)
	}
	ext := strings.ToLower(filepath.Ext(path))
	return raw, ext == ".yaml" || ext == ".yml", nil
}
