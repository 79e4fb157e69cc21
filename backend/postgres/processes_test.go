package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/internal/procstore"
	"github.com/belay-run/belay/proptest"
)

// remoteDSN tells a process that it is one of the peers.
const remoteDSN = "BELAY_TEST_REMOTE"

// TestMain is also the entry of the processes that some tests start.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(remoteDSN); dsn != "" {
		if err := serveRemote(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		// Each step of a random history looks at the whole store, over a connection.
		if err := flag.Set("rapid.checks", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if err := everyProcess.end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// serveRemote opens stores in this process, on a pool that they share.
func serveRemote(dsn string) error {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return procstore.Serve(os.Stdin, os.Stdout, func(schema string, now func() time.Time) (procstore.Store, error) {
		return postgres.New(pool, postgres.Options{Schema: schema, Now: now, VerifyOnly: true, PollOnly: true})
	})
}

// everyProcess are the processes that the tests share.
var everyProcess processes

type processes struct {
	mu    sync.Mutex
	peers *procstore.Peers
}

func (p *processes) on(dsn string) *procstore.Peers {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		p.peers = procstore.NewPeers(func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), remoteDSN+"="+dsn)
			cmd.Stderr = os.Stderr
			return cmd
		})
	}
	return p.peers
}

func (p *processes) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return nil
	}
	return p.peers.End()
}

// TestSeveralStores: the whole contract, random histories and goroutines at once, where every call goes
// through another store on the same schema, with connections of its own.
func TestSeveralStores(t *testing.T) {
	t.Parallel()
	everyKit(t, func(t proptest.T) proptest.Opener { return severalOpener(t, direct(t)) })
}

// TestSeveralProcesses: the same where every call is made by another process.
func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	everyKit(t, func(t proptest.T) proptest.Opener { return everywhereOpener(t, direct(t)) })
}

// everyKit runs what the kit has: of its cases those of transitions and of order, and all when many
// random cases are asked for.
func everyKit(t *testing.T, opener func(t proptest.T) proptest.Opener) {
	t.Run("Conformance", func(t *testing.T) { proptest.Conformance(t, opener(t), some()) })
	t.Run("Check", func(t *testing.T) { proptest.Check(t, opener(t), proptest.Options{Rounds: 1}) })
	t.Run("Linearizable", func(t *testing.T) { proptest.Linearizable(t, opener(t), proptest.Options{Histories: 20}) })
}

func severalOpener(t proptest.T, a access) proptest.Opener {
	t.Helper()
	other := a
	pool := newPool(t, a.dsn, a.mode, 20)
	other.pool = func() *pgxpool.Pool { return pool }
	return opened(t, a, func(t proptest.T, f *fixture, o *proptest.Opened) {
		t.Helper()
		second := &fixture{access: other, schema: f.schema}
		o.Store = several{procstore.NewSeveral(second.open(t), f.store), f.store}
		o.Hooks.SetClock = func(now time.Time) {
			f.setClock(now)
			second.setClock(now)
		}
	})
}

// several is stores in turn. Wakes that a store tells only its own subscribers of (those of releases and
// abandons) are not for the others, and a clock keeps from going back within one store.
type several struct {
	*procstore.Several
	clock backend.Clock
}

func (s several) Features() backend.Features {
	f := s.Several.Features()
	f.Wakes, f.Clock = nil, s.clock
	return f
}

func everywhereOpener(t proptest.T, a access) proptest.Opener {
	t.Helper()
	return opened(t, a, func(t proptest.T, f *fixture, o *proptest.Opened) {
		t.Helper()
		e, err := everyProcess.on(pgtest.DSN(t)).Open(f.schema, f.store)
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		o.Store = e
		o.Hooks.SetClock = func(now time.Time) {
			f.setClock(now)
			if err := e.SetClock(now); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}

// opened is opener, of stores that change makes something else of. They cannot be reopened.
func opened(t proptest.T, a access, change func(t proptest.T, f *fixture, o *proptest.Opened)) proptest.Opener {
	t.Helper()
	used := &schemas{top: t}
	return func(t proptest.T) proptest.Opened {
		t.Helper()
		f := newFixture(t, a, used.take(t, a))
		o := f.opened()
		o.Hooks.Reopen = nil
		change(t, f, &o)
		return o
	}
}
