package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// TestWriteFormatPins: a store that is pinned to format 1 reads and writes what that can say, and refuses
// what it cannot, in each way of writing a document: nothing is changed then, and a store that is not
// pinned goes on with the run.
func TestWriteFormatPins(t *testing.T) {
	a := direct(t)
	newest := newStore(t, a, postgres.Options{PollOnly: true})
	pinned := newStore(t, a, postgres.Options{PollOnly: true, Schema: newest.Schema(), WriteFormat: 1})
	news := func(d *run.Document) {
		d.Lineage = []run.Ancestor{{Hash: strings.Repeat("0a", 32), Until: 1}}
	}
	policy := claim.Policy{Now: began.Add(time.Second), TTL: time.Minute, Limit: 1, MaxAttempts: 3}

	// What both can say.
	started, _ := start(t, pinned, backend.Tenantless(), []string{"old"})
	batch, err := pinned.ClaimDueDocuments(t.Context(), policy)
	if err != nil || len(batch.Leases) != 1 || batch.Documents[0].Err != nil {
		t.Fatalf("a claim gave %+v, %v", batch, err)
	}
	if _, err := pinned.Commit(t.Context(), backend.System(), stepping(started[0].Document, batch.Leases[0].Token)); err != nil {
		t.Errorf("a commit that format 1 can say: %v", err)
	}
	if d, err := newest.FetchRun(t.Context(), backend.System(), "old"); err != nil || d.Seq != 2 {
		t.Errorf("the newer one reads %+v, %v", d, err)
	}

	refused := func(what string, err error) {
		t.Helper()
		refusal, ok := errors.AsType[*run.WriteFormatError](err)
		if !ok || refusal.Format != 1 || refusal.Needs != 2 || !errors.Is(err, run.ErrFormat) {
			t.Errorf("%s was answered %v", what, err)
		}
	}
	unchanged := func(id string, seq int64) {
		t.Helper()
		if d, err := newest.FetchRun(t.Context(), backend.System(), id); err != nil || d.Seq != seq {
			t.Errorf("run %s is %+v, %v", id, d, err)
		}
	}
	newer := draft("newer", func(in *backend.Initialization) { news(in.Document) })
	_, err = pinned.InsertRun(t.Context(), backend.Tenantless(), newer)
	refused("a start", err)
	refused("a start in a group", pinned.InsertRuns(t.Context(), backend.Tenantless(), []backend.Initialization{newer})[0].Err)
	if _, err := newest.FetchRun(t.Context(), backend.System(), "newer"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a start that was refused left %v", err)
	}
	second, err := newest.FetchRun(t.Context(), backend.System(), "old")
	if err != nil {
		t.Fatal(err)
	}
	step := stepping(second, batch.Leases[0].Token)
	news(step.Document)
	_, err = pinned.Commit(t.Context(), backend.System(), step)
	refused("a commit", err)
	refused("a commit in a group", pinned.Commits(t.Context(), backend.System(), []backend.Commit{step})[0].Err)
	_, err = pinned.MutateRun(t.Context(), backend.System(), "old", "mutation", func(*run.Document) (backend.Mutation, error) {
		m := step.Proposal
		m.Schedule.Kind = checkpoint.ReleaseNow
		return backend.Mutation{Proposal: &m}, nil
	})
	refused("a mutation", err)
	unchanged("old", 2)
	if _, err := newest.Commit(t.Context(), backend.System(), step); err != nil {
		t.Errorf("the store that is not pinned: %v", err)
	}
	unchanged("old", 3)

	// A run that has what format 1 cannot say is not worked on, though it can be looked at.
	if _, err := newest.InsertRun(t.Context(), backend.Tenantless(), newer); err != nil {
		t.Fatal(err)
	}
	if _, err := pinned.FetchRun(t.Context(), backend.System(), "newer"); err != nil {
		t.Errorf("a look: %v", err)
	}
	got, err := pinned.ClaimDueDocuments(t.Context(), policy)
	if err != nil || len(got.Leases) != 1 || len(got.Documents) != 1 {
		t.Fatalf("a claim gave %+v, %v", got, err)
	}
	refused("a claim with documents", got.Documents[0].Err)
}
