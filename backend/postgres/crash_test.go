package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/run"
)

// TestH20H24NothingAcknowledgedIsLostWithTheServer (H20, H24): while workers start and finish runs, sessions are ended and the server
// is killed and recovers: no acknowledged commit is lost, none is applied twice.
func TestH20H24NothingAcknowledgedIsLostWithTheServer(t *testing.T) {
	cluster := pgtest.Start(t)
	pool := newPool(t, cluster.DSN(), pgx.QueryExecModeCacheStatement, 8)
	a := access{pool: func() *pgxpool.Pool { return pool }}
	s := newStore(t, a, postgres.Options{Schema: "killed", RetryTimeout: time.Minute})
	var acknowledged, workersAtWork atomic.Int64
	stop := make(chan struct{})
	errs := make([]error, 6)
	counts := make([]int, len(errs))
	var workers sync.WaitGroup
	for w := range errs {
		workersAtWork.Add(1)
		workers.Go(func() {
			defer workersAtWork.Add(-1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if errs[w] = startAndFinish(t.Context(), s, fmt.Sprintf("run-%d-%d", w, counts[w])); errs[w] != nil {
					return
				}
				counts[w]++
				acknowledged.Add(1)
			}
		})
	}
	progress := func() {
		for goal := acknowledged.Load() + 50; acknowledged.Load() < goal && workersAtWork.Load() > 0; {
			time.Sleep(time.Millisecond)
		}
	}
	for range 2 {
		progress()
		_, _ = pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")
		progress()
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Up(); err != nil {
			t.Fatal(err)
		}
	}
	progress()
	close(stop)
	workers.Wait()
	for w, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v", w, err)
		}
		for n := range counts[w] {
			d, err := s.FetchRun(t.Context(), backend.System(), fmt.Sprintf("run-%d-%d", w, n))
			if err != nil || d.Status != run.Done || d.Seq != 2 {
				t.Errorf("a finished run is %+v, %v", d, err)
			}
		}
	}
	for f, err := range s.Audit(t.Context(), backend.AuditPolicy{}) {
		t.Errorf("the audit finds %+v, %v", f, err)
	}
	t.Logf("%d runs finished", acknowledged.Load())
}

// startAndFinish starts a run as claimed. A start whose answer was lost has no lease; it is
// claimed when its TTL, of nothing here, is over.
func startAndFinish(ctx context.Context, s *postgres.Store, id string) error {
	in := draft(id, func(in *backend.Initialization) {
		in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{}
	})
	got, err := s.InsertRun(ctx, backend.Tenantless(), in)
	if err != nil {
		return err
	}
	lease := got.Lease
	for lease == nil {
		batch, err := s.ClaimDue(ctx, claim.Policy{Now: began.Add(time.Hour), Limit: 1, MaxAttempts: 100, Filter: claim.Filter{Runs: []string{id}}})
		if err != nil && backend.Classify(err) == backend.Permanent {
			return err
		}
		if err == nil && len(batch.Leases) == 1 {
			lease = &batch.Leases[0]
		}
		if err == nil && len(batch.Leases) == 0 { // a claim whose answer was lost, at this very instant
			if batch, err = s.ClaimDue(ctx, claim.Policy{Now: began.Add(2 * time.Hour), Limit: 1, MaxAttempts: 100, Filter: claim.Filter{Runs: []string{id}}}); err == nil && len(batch.Leases) == 1 {
				lease = &batch.Leases[0]
			}
		}
	}
	_, err = s.Commit(ctx, backend.System(), ending(in.Document, lease.Token))
	return err
}

// TestEightProcesses: eight processes claim and commit 50,000 runs on one database, and are
// killed at random: every run finishes exactly once, and the audit is clean. BELAY_TEST_RUNS
// is another number of runs.
func TestEightProcesses(t *testing.T) {
	const processes, kills = 8, 10
	runs := 50_000
	if n, err := strconv.Atoi(os.Getenv("BELAY_TEST_RUNS")); err == nil {
		runs = n
	}
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	fill(t, s, runs)
	begun := time.Now()
	children := make([]*child, processes)
	for i := range children {
		children[i] = spawn(t, s.Schema())
	}
	killed := 0
	finished := func() (n int) {
		t.Helper()
		if err := a.raw.QueryRow(t.Context(), "select count(*) from "+nameOf(s, "runs")+" where finished_at is not null").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n := finished(); n < runs; n = finished() {
		if killed < kills && n >= runs*killed/(2*kills) {
			i := rand.IntN(processes)
			children[i].kill()
			children[i] = spawn(t, s.Schema())
			killed++
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("%d of %d runs have finished", n, runs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(begun)
	for _, c := range children {
		if err := c.end(); err != nil {
			t.Errorf("a process ended with %v", err)
		}
	}
	var once, poisoned, rows int
	err := a.raw.QueryRow(t.Context(), "select count(*) filter (where status = 'done' and checkpoint_seq = 2), count(*) filter (where poisoned_at is not null), "+
		"(select count(*) from "+nameOf(s, "events")+") from "+nameOf(s, "runs")).Scan(&once, &poisoned, &rows)
	if err != nil {
		t.Fatal(err)
	}
	findings := 0
	for f, err := range s.Audit(t.Context(), backend.AuditPolicy{}) {
		if findings++; findings <= 10 {
			t.Errorf("the audit finds %+v, %v", f, err)
		}
	}
	if once != runs || poisoned != 0 || rows != 2*runs { // one of each transition; the audit has looked inside
		t.Errorf("of %d runs %d finished exactly once, %d are poisoned, and there are %d rows of events", runs, once, poisoned, rows)
	}
	t.Logf("runs %d, kills %d, poisons %d, audit findings %d, in %v", once, killed, poisoned, findings, took.Round(time.Millisecond))
}

// fill stores runs that are due.
func fill(t *testing.T, s *postgres.Store, runs int) {
	t.Helper()
	for n := 0; n < runs; {
		var ins []backend.Initialization
		for ; n < runs && len(ins) < 500; n++ {
			ins = append(ins, draft(fmt.Sprintf("run-%06d", n), func(in *backend.Initialization) { in.Now = time.Time{} }))
		}
		for _, got := range s.InsertRuns(t.Context(), backend.Tenantless(), ins) {
			if got.Err != nil {
				t.Fatal(got.Err)
			}
		}
	}
}

// child is a process that works off runs until its input ends.
type child struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	out   *strings.Builder
}

func spawn(t *testing.T, schema string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^TestWorkerProcess$"), out: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), "BELAY_TEST_WORKER="+schema, "BELAY_TEST_DSN="+pgtest.DSN(t))
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

func (c *child) end() error {
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, c.out)
	}
	return nil
}

// TestWorkerProcess is one of the processes of TestEightProcesses; by itself it is one that
// has nothing to do.
func TestWorkerProcess(t *testing.T) {
	schema := os.Getenv("BELAY_TEST_WORKER")
	if schema == "" {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	pool := newPool(t, pgtest.DSN(t), pgx.QueryExecModeCacheStatement, 2)
	s, err := postgres.New(pool, postgres.Options{Schema: schema, PollOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for ctx.Err() == nil {
		// Under the database's clock: a claim of a killed process is expired after a second.
		batch, err := s.ClaimDueDocuments(ctx, claim.Policy{TTL: time.Second, Limit: 100, MaxAttempts: 50})
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("claim: %v", err)
			}
			return
		}
		if len(batch.Leases) == 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		var commits []backend.Commit
		for i, lease := range batch.Leases {
			if err := batch.Documents[i].Err; err != nil {
				t.Fatal(err)
			}
			commits = append(commits, ending(batch.Documents[i].Document, lease.Token))
		}
		for _, got := range s.Commits(context.WithoutCancel(ctx), backend.System(), commits) {
			// A claim that took longer than its second was taken over.
			if got.Err != nil && !isStale(got.Err) {
				t.Errorf("commit: %v", got.Err)
			}
		}
	}
}

func isStale(err error) bool { return errors.Is(err, checkpoint.ErrStaleFence) }
