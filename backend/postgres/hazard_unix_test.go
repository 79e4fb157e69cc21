//go:build unix

package postgres_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/run"
)

// TestH2FrozenWritersAreInert: three processes claim a run one after the other, the first of them commits
// once, and each is stopped by the system and loses its claim by age. The fourth holder commits; then they
// wake, and nothing that they send under their old tokens has an effect.
func TestH2FrozenWritersAreInert(t *testing.T) {
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	start(t, s, backend.Tenantless(), []string{"run"})
	var frozen []*zombie
	for generation := range 3 {
		now := began.Add(time.Duration(generation) * time.Hour)
		z := newZombie(t, s.Schema(), now, generation == 0)
		z.says(t, "holds")
		if err := z.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		frozen = append(frozen, z)
	}
	p := claim.Policy{Now: began.Add(3 * time.Hour), TTL: time.Minute, Limit: 1, MaxAttempts: 9}
	batch := due(t, s, p)
	if len(batch.Leases) != 1 || batch.Leases[0].Seq != 2 {
		t.Fatalf("%+v", batch)
	}
	before, err := s.InspectRun(t.Context(), backend.System(), "run")
	if err != nil {
		t.Fatal(err)
	}
	thaw := func(z *zombie) {
		t.Helper()
		if err := z.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(z.stdin, "wake\n"); err != nil {
			t.Fatal(err)
		}
		z.says(t, "stale lost released stale")
	}
	// One wakes under the new holder's claim, the others after its end.
	thaw(frozen[0])
	if after, err := s.InspectRun(t.Context(), backend.System(), "run"); err != nil || after.ClaimedAt != before.ClaimedAt ||
		after.Attempts != before.Attempts || after.Abandons != before.Abandons || after.Document.Seq != before.Document.Seq {
		t.Errorf("a frozen writer changed %+v to %+v, %v", before, after, err)
	}
	if _, err := s.Commit(t.Context(), backend.System(), ending(before.Document, batch.Leases[0].Token)); err != nil {
		t.Errorf("the holder's commit: %v", err)
	}
	thaw(frozen[1])
	thaw(frozen[2])
	d, err := s.FetchRun(t.Context(), backend.System(), "run")
	if err != nil || d.Status != run.Done || d.Seq != 3 {
		t.Errorf("the document is not the holder's: %+v, %v", d, err)
	}
	for f, err := range s.Audit(t.Context(), backend.AuditPolicy{}) {
		t.Errorf("the audit finds %+v, %v", f, err)
	}
}

// zombie is a process that claims the run and waits.
type zombie struct {
	cmd   *exec.Cmd
	stdin io.Writer
	lines *bufio.Scanner
}

func newZombie(t *testing.T, schema string, now time.Time, commits bool) *zombie {
	t.Helper()
	z := &zombie{cmd: exec.Command(os.Args[0], "-test.run=^TestFrozenProcess$")}
	z.cmd.Env = append(os.Environ(), "BELAY_TEST_FROZEN="+schema, "BELAY_TEST_DSN="+pgtest.DSN(t),
		"BELAY_TEST_FROZEN_AT="+now.Format(time.RFC3339Nano), fmt.Sprintf("BELAY_TEST_FROZEN_COMMITS=%v", commits))
	stdin, err := z.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := z.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	z.stdin, z.lines = stdin, bufio.NewScanner(stdout)
	if err := z.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = z.cmd.Process.Kill()
		_ = z.cmd.Wait()
	})
	return z
}

func (z *zombie) says(t *testing.T, want string) {
	t.Helper()
	var said []string
	for z.lines.Scan() {
		line, ok := strings.CutPrefix(z.lines.Text(), "frozen: ")
		if said = append(said, z.lines.Text()); ok {
			if line != want {
				t.Fatalf("a process says %q; it must say %q", line, want)
			}
			return
		}
	}
	t.Fatalf("a process ended without saying %q:\n%s", want, strings.Join(said, "\n"))
}

// TestFrozenProcess is one of the processes of TestH2FrozenWritersAreInert; by itself it is one that
// has nothing to do.
func TestFrozenProcess(t *testing.T) {
	schema := os.Getenv("BELAY_TEST_FROZEN")
	if schema == "" {
		return
	}
	now, err := time.Parse(time.RFC3339Nano, os.Getenv("BELAY_TEST_FROZEN_AT"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := postgres.New(newPool(t, pgtest.DSN(t), pgx.QueryExecModeCacheStatement, 2), postgres.Options{Schema: schema, PollOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	batch, err := s.ClaimDueDocuments(t.Context(), claim.Policy{Now: now, TTL: time.Minute, Limit: 1, MaxAttempts: 9})
	if err != nil || len(batch.Leases) != 1 {
		t.Fatalf("%+v, %v", batch, err)
	}
	l, d := batch.Leases[0], batch.Documents[0].Document
	if os.Getenv("BELAY_TEST_FROZEN_COMMITS") == "true" {
		c := stepping(d, l.Token)
		c.Now = now
		if _, err := s.Commit(t.Context(), backend.System(), c); err != nil {
			t.Fatal(err)
		}
		d = c.Document
	}
	fmt.Println("frozen: holds")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	late := ending(d, l.Token)
	late.CheckpointID = checkpoint.ID("late " + string(l.Token)) // not the holder's, which would be a replay
	_, committed := s.Commit(t.Context(), backend.System(), late)
	refreshed := s.RefreshClaim(t.Context(), l.Run, l.Token, now.Add(100*time.Hour))
	released := s.ReleaseClaim(t.Context(), l.Run, l.Token, claim.ReleasePolicy{Now: now, Refund: true})
	abandoned, err := s.AbandonClaim(t.Context(), l.Run, l.Token, claim.AbandonPolicy{Now: now, ExpectedSeq: d.Seq, MaxAbandons: 1})
	says := []string{fmt.Sprint(committed), fmt.Sprint(refreshed), fmt.Sprint(released), fmt.Sprint(abandoned, err)}
	if isStale(committed) {
		says[0] = "stale"
	}
	if errors.Is(refreshed, backend.ErrClaimLost) {
		says[1] = "lost"
	}
	if released == nil {
		says[2] = "released"
	}
	if abandoned == claim.Stale && err == nil {
		says[3] = "stale"
	}
	fmt.Println("frozen: " + strings.Join(says, " "))
}
