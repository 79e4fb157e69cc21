package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/proptest"
)

func newVerifyCommand(t *terminal) *cobra.Command {
	var checks int
	var only []string
	cmd := &cobra.Command{
		Use:   "verify --db DSN",
		Short: "Prove that a backend keeps to the contract, where it is to run",
		Long: `Run the property kit against a backend: every clause of the contract, random histories against a model, and
histories of goroutines. It works in a scratch place of its own, which must not be there yet; it is made, and
removed at the end: sqlite:DIRECTORY is a directory, beside the databases that matter, say; in a PostgreSQL database
it is the schema ` + scratchSchema + `, or the one of ` + schemaParameter + `, and a few more whose names begin so.`,
		Example: `  belay verify --db sqlite:/var/lib/belay/scratch
  belay verify --db postgres://owner@db/orders
  belay verify --db memory: --checks 1000 --json`,
		Args: noArguments,
	}
	place := newLocation(t, cmd)
	cmd.Flags().IntVar(&checks, "checks", 100, "how many random histories")
	cmd.Flags().StringArrayVar(&only, "only", nil, "of the contract only this clause or case: K3, K3.max-attempts; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if checks < 1 {
			return usage(fmt.Errorf("--checks %d is not above 0", checks), "as in: --checks 1000")
		}
		dsn, own, err := place.dsn()
		if err != nil {
			return err
		}
		if own {
			return usage(errors.New("--db is needed: what is verified is never where runs are kept"), "as in: --db sqlite:DIRECTORY, of one that is not there yet, or --db postgres://HOST/DATABASE")
		}
		open, remove, err := scratch(cmd.Context(), dsn)
		if err != nil {
			return err
		}
		t.say("verifying %s, with %d random histories", shown(dsn), checks)
		v, err := verify(cmd.Context(), open, checks, proptest.Options{Only: only})
		if err = errors.Join(err, remove()); err != nil {
			return err
		}
		if t.json {
			err = t.result(v)
		} else {
			_, err = fmt.Fprint(t.out, v)
		}
		if err == nil && !v.Passed() {
			err = errReported{exitFailed}
		}
		return err
	}
	return exits(cmd, exitFailed, exitInfrastructure)
}

// verify verifies until the context ends. Then no more stores are opened, and those that are open have a
// while to come to their end, so that nothing makes anew what is removed.
func verify(ctx context.Context, open proptest.Opener, checks int, o proptest.Options) (proptest.Verification, error) {
	done := make(chan proptest.Verification, 1)
	until := func(t proptest.T) proptest.Opened {
		t.Helper()
		if ctx.Err() != nil {
			t.Fatalf("interrupted")
		}
		return open(t)
	}
	go func() { done <- proptest.Verify(until, checks, o) }()
	select {
	case v := <-done:
		if ctx.Err() == nil {
			return v, nil
		}
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(shutdownTimeout):
		}
	}
	return proptest.Verification{}, &exitError{code: exitInfrastructure, err: fmt.Errorf("verifying was interrupted: %w", context.Cause(ctx))}
}

// scratch is an opener of empty stores where the DSN says, and what removes that place.
func scratch(ctx context.Context, dsn string) (open proptest.Opener, remove func() error, err error) {
	switch {
	case dsn == memoryDSN:
		return openMemory, func() error { return nil }, nil
	case isServer(dsn):
		return scratchServer(ctx, dsn)
	}
	if dsn, err = otherDSN(dsn, "sqlite:DIRECTORY, postgres://HOST/DATABASE or memory:"); err != nil {
		return nil, nil, err
	}
	dir, err := sqlite.Path(dsn)
	if err != nil {
		return nil, nil, forCommandLine(err)
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil, nil, usage(fmt.Errorf("%s is there already, and is not touched", dir), "name a directory that is not there yet: it is made, and removed at the end")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, usage(fmt.Errorf("%s cannot be made: the directory above it is not there", dir), "make that first, or name another")
	case err != nil:
		return nil, nil, err
	}
	var files atomic.Int64
	open = func(t proptest.T) proptest.Opened {
		return openLite(t, filepath.Join(dir, fmt.Sprintf("%d.db", files.Add(1))))
	}
	return open, func() error { return os.RemoveAll(dir) }, nil
}

// settable is a clock that can be set.
type settable struct{ at atomic.Pointer[time.Time] }

func (c *settable) now() time.Time {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}

func (c *settable) set(now time.Time) { c.at.Store(&now) }

func openMemory(t proptest.T) proptest.Opened {
	clock := &settable{}
	store := memory.New(memory.Options{Now: clock.now})
	t.Cleanup(func() { _ = store.Close() })
	return proptest.Opened{Store: store, Hooks: proptest.Hooks{SetClock: clock.set}}
}

// openLite opens an empty store in a file that is removed with it.
func openLite(t proptest.T, path string) proptest.Opened {
	t.Helper()
	clock := &settable{}
	// Flushing is the disk's matter, and would take hours here.
	open := func(t proptest.T) *sqlite.Store {
		s, err := sqlite.Open(context.Background(), path, sqlite.Options{Now: clock.now, Synchronous: sqlite.Normal})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	store := open(t)
	return proptest.Opened{Store: store, Hooks: proptest.Hooks{
		SetClock: clock.set,
		Reopen: func(t proptest.T) backend.Store {
			if err := store.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			store = open(t)
			return store
		},
		Audit: func(ctx context.Context) ([]string, error) { return audit(ctx, store) },
	}}
}

// audit is what an audit finds, a line for each.
func audit(ctx context.Context, auditor backend.Auditor) (lines []string, err error) {
	for finding, err := range auditor.Audit(ctx, backend.AuditPolicy{}) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", finding.Check, finding.Run, finding.Detail))
	}
	return lines, nil
}
