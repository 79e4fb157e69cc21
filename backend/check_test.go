package backend_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	start     = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	elsewhere = time.FixedZone("elsewhere", 3600)
	ref       = graph.Ref{ID: "g", Hash: "h"}
	long      = strings.Repeat("x", 256)
)

// first is a well-formed insert.
func first() backend.Initialization {
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: &run.Document{ID: "a", Graph: ref, Status: run.Running, Step: 1, Seq: 1, EventSeq: 2, StartedAt: start, UpdatedAt: start},
			Events: []run.Event{
				{Run: "a", Seq: 1, Type: run.EventRunInitialized, At: start, Step: 1},
				{Run: "a", Seq: 2, Type: run.EventCheckpointCommitted, At: start, Step: 1, Checkpoint: checkpoint.RunInitialized, Commit: 1},
			},
			Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: start,
		},
		CheckpointID: "c1",
	}
}

// second is a well-formed commit on top of first.
func second() backend.Commit {
	d := *first().Document
	d.Seq, d.EventSeq, d.Step = 2, 4, 2
	return backend.Commit{
		Proposal: run.Proposal{
			Document: &d,
			Events: []run.Event{
				{Run: "a", Seq: 3, Type: run.EventNodeCompleted, At: start, Step: 1, Node: "n"},
				{Run: "a", Seq: 4, Type: run.EventCheckpointCommitted, At: start, Step: 1, Checkpoint: checkpoint.StepCommitted, Commit: 2},
			},
			Type: checkpoint.StepCommitted, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Expected: 1, Now: start,
		},
		CheckpointID: "c2", Token: "t",
	}
}

// kinds are the refusals of the checks; each refusal is exactly one of them.
var kinds = []error{
	backend.ErrInvalidArgument, backend.ErrInvalidCommit, backend.ErrInvalidMutation, backend.ErrEventConflict,
	backend.ErrUnsupported, backend.ErrInvalidGraphHash, backend.ErrCorruptGraph,
}

func answers(t *testing.T, what string, err, want error) {
	t.Helper()
	for _, kind := range kinds {
		if errors.Is(err, kind) != (kind == want) {
			t.Errorf("%s: answered %v; want %v", what, err, want)
			return
		}
	}
	if want == nil && err != nil {
		t.Errorf("%s: answered %v", what, err)
	}
}

func TestR1InsertsAreCheckedInOrder(t *testing.T) {
	all := backend.Features{StartClaimed: true}
	claimed := func(in *backend.Initialization) {
		in.Claim, in.Schedule = &backend.StartClaim{}, checkpoint.Schedule{Kind: checkpoint.Retain}
	}
	for _, c := range []struct {
		name  string
		owner backend.Owner
		f     backend.Features
		edit  func(in *backend.Initialization)
		want  error
	}{
		{"well-formed", backend.Tenantless(), all, func(*backend.Initialization) {}, nil},
		{"due later", backend.Tenantless(), all, func(in *backend.Initialization) {
			in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: start}
		}, nil},
		{"claimed", backend.Tenantless(), all, claimed, nil},
		{"a sequence above 1", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Seq = 7 }, nil},
		{"the longest key", backend.Tenantless(), all, func(in *backend.Initialization) { in.Key = long[:255] }, nil},

		{"no owner", backend.Owner{}, all, func(in *backend.Initialization) { in.Document.Status = run.Done }, backend.ErrInvalidArgument},
		{"a long tenant", backend.Tenant(long), all, func(*backend.Initialization) {}, backend.ErrInvalidArgument},
		{"no run id", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.ID = "" }, backend.ErrInvalidArgument},
		{"a long run id", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.ID, in.Document.Status = long, run.Done }, backend.ErrInvalidArgument},
		{"no checkpoint id", backend.Tenantless(), all, func(in *backend.Initialization) { in.CheckpointID, in.Document = "", nil }, backend.ErrInvalidArgument},
		{"a long key", backend.Tenantless(), all, func(in *backend.Initialization) { in.Key = long }, backend.ErrInvalidArgument},
		{"a key that is not UTF-8", backend.Tenantless(), all, func(in *backend.Initialization) { in.Key = "\xff" }, backend.ErrInvalidArgument},
		{"a negative window", backend.Tenantless(), all, func(in *backend.Initialization) { in.Window = -1 }, backend.ErrInvalidArgument},
		{"a negative TTL", backend.Tenantless(), all, func(in *backend.Initialization) { claimed(in); in.Claim.TTL = -1 }, backend.ErrInvalidArgument},
		{"claimed without the feature", backend.Tenantless(), backend.Features{}, claimed, backend.ErrUnsupported},

		{"no document", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document = nil }, backend.ErrInvalidCommit},
		{"created", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Status = run.Created }, backend.ErrInvalidCommit},
		{"waiting", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Status = run.Waiting }, backend.ErrInvalidCommit},
		{"no sequence", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Seq = 0 }, backend.ErrInvalidCommit},
		{"no start", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.StartedAt = time.Time{} }, backend.ErrInvalidCommit},
		{"another type", backend.Tenantless(), all, func(in *backend.Initialization) { in.Type = checkpoint.StepCommitted }, backend.ErrInvalidCommit},
		{"no schedule", backend.Tenantless(), all, func(in *backend.Initialization) { in.Schedule = checkpoint.Schedule{} }, backend.ErrInvalidCommit},
		{"neither wake nor claim", backend.Tenantless(), all, func(in *backend.Initialization) { in.Schedule.Kind = checkpoint.Retain }, backend.ErrInvalidCommit},
		{"waiting for a signal", backend.Tenantless(), all, func(in *backend.Initialization) { in.Schedule.Kind = checkpoint.ReleaseExternal }, backend.ErrInvalidCommit},
		{"both wake and claim", backend.Tenantless(), all, func(in *backend.Initialization) { in.Claim = &backend.StartClaim{} }, backend.ErrInvalidCommit},
		{"a document that may not be stored", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Output = value.Value(`{}`) }, backend.ErrInvalidCommit},
		{"no graph", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Graph = graph.Ref{} }, backend.ErrInvalidCommit},
		{"a long graph id", backend.Tenantless(), all, func(in *backend.Initialization) { in.Document.Graph.ID = long }, backend.ErrInvalidCommit},
		{"an event of another run", backend.Tenantless(), all, func(in *backend.Initialization) { in.Events[0].Run = "b" }, backend.ErrInvalidCommit},
		{"an event without a sequence", backend.Tenantless(), all, func(in *backend.Initialization) { in.Events[0].Seq = 0 }, backend.ErrInvalidCommit},
		{"an event of no type", backend.Tenantless(), all, func(in *backend.Initialization) { in.Events[0].Type = "" }, backend.ErrInvalidCommit},
		{"an event that is not UTF-8", backend.Tenantless(), all, func(in *backend.Initialization) { in.Events[0].Reason = "\xff" }, backend.ErrInvalidCommit},
		{"two events of one sequence", backend.Tenantless(), all, func(in *backend.Initialization) { in.Events[1].Seq = 1 }, backend.ErrEventConflict},
	} {
		in := first()
		c.edit(&in)
		_, err := backend.CheckInitialization(c.owner, in, c.f, value.Limits{})
		answers(t, c.name, err, c.want)
	}
}

func TestT1CommitsAreCheckedInOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope backend.Scope
		edit  func(c *backend.Commit)
		want  error
	}{
		{"well-formed", backend.System(), func(*backend.Commit) {}, nil},
		{"retaining", backend.System(), func(c *backend.Commit) { c.Schedule.Kind = checkpoint.Retain }, nil},

		{"no scope", backend.Scope{}, func(c *backend.Commit) { c.Document = nil }, backend.ErrInvalidArgument},
		{"no run id", backend.System(), func(c *backend.Commit) { c.Document.ID, c.Type = "", "" }, backend.ErrInvalidArgument},
		{"no checkpoint id", backend.System(), func(c *backend.Commit) { c.CheckpointID, c.Type = "", "" }, backend.ErrInvalidArgument},
		{"no token", backend.System(), func(c *backend.Commit) { c.Token, c.Type = "", "" }, backend.ErrInvalidArgument},
		{"a long token", backend.System(), func(c *backend.Commit) { c.Token = claim.Token(long) }, backend.ErrInvalidArgument},

		{"no document", backend.System(), func(c *backend.Commit) { c.Document = nil }, backend.ErrInvalidCommit},
		{"two sequences at once", backend.System(), func(c *backend.Commit) { c.Document.Seq = 3 }, backend.ErrInvalidCommit},
		{"the same sequence", backend.System(), func(c *backend.Commit) { c.Expected = 2 }, backend.ErrInvalidCommit},
		{"below the first sequence", backend.System(), func(c *backend.Commit) { c.Expected, c.Document.Seq = -1, 0 }, backend.ErrInvalidCommit},
		{"an unknown type", backend.System(), func(c *backend.Commit) { c.Type = "sometime" }, backend.ErrInvalidCommit},
		{"created", backend.System(), func(c *backend.Commit) { c.Document.Status = run.Created }, backend.ErrInvalidCommit},
		{"no schedule", backend.System(), func(c *backend.Commit) { c.Schedule = checkpoint.Schedule{} }, backend.ErrInvalidCommit},
		{"an instant with release-now", backend.System(), func(c *backend.Commit) { c.Schedule.At = start }, backend.ErrInvalidCommit},
		{"running and released for good", backend.System(), func(c *backend.Commit) { c.Schedule.Kind = checkpoint.ReleaseTerminal }, backend.ErrInvalidCommit},
		{"a document that may not be stored", backend.System(), func(c *backend.Commit) { c.Document.FinishedAt = start }, backend.ErrInvalidCommit},
		{"an event of another run", backend.System(), func(c *backend.Commit) { c.Events[1].Run = "b" }, backend.ErrInvalidCommit},
		{"unequal events", backend.System(), func(c *backend.Commit) { c.Events[0].Seq = 4 }, backend.ErrEventConflict},
	} {
		commit := second()
		c.edit(&commit)
		_, err := backend.CheckCommit(c.scope, commit, value.Limits{})
		answers(t, c.name, err, c.want)
	}
}

func TestT3MutationsAreCheckedAgainstTheCurrentDocument(t *testing.T) {
	waiting := func(d *run.Document) {
		d.Status, d.Pending = run.Waiting, []string{"n"}
		d.Interrupts = []run.Interrupt{{ID: "q", Node: "n", Status: run.InterruptOpen, RequestedAt: start}}
	}
	for _, c := range []struct {
		name string
		edit func(current *run.Document, p *run.Proposal)
		want error
	}{
		{"well-formed", func(*run.Document, *run.Proposal) {}, nil},
		{"a migration", func(_ *run.Document, p *run.Proposal) { p.Type, p.Document.Graph.Hash = checkpoint.GraphMigrated, "h2" }, nil},
		{"an answer", func(d *run.Document, _ *run.Proposal) { waiting(d) }, nil},

		{"no document", func(_ *run.Document, p *run.Proposal) { p.Document = nil }, backend.ErrInvalidMutation},
		{"another run", func(_ *run.Document, p *run.Proposal) { p.Document.ID = "b" }, backend.ErrInvalidMutation},
		{"an older sequence", func(d *run.Document, _ *run.Proposal) { d.Seq = 2 }, backend.ErrInvalidMutation},
		{"two sequences at once", func(_ *run.Document, p *run.Proposal) { p.Document.Seq = 3 }, backend.ErrInvalidMutation},
		{"retaining", func(_ *run.Document, p *run.Proposal) { p.Schedule.Kind = checkpoint.Retain }, backend.ErrInvalidMutation},
		{"another graph", func(_ *run.Document, p *run.Proposal) { p.Type, p.Document.Graph.ID = checkpoint.GraphMigrated, "g2" }, backend.ErrInvalidMutation},
		{"another version without a migration", func(_ *run.Document, p *run.Proposal) { p.Document.Graph.Hash = "h2" }, backend.ErrInvalidMutation},
		{"another start", func(_ *run.Document, p *run.Proposal) { p.Document.StartedAt = start.Add(time.Microsecond) }, backend.ErrInvalidMutation},
		{"a finished run", func(d *run.Document, _ *run.Proposal) { d.Status = run.Done }, backend.ErrInvalidMutation},
		{"from waiting to waiting", func(d *run.Document, p *run.Proposal) {
			waiting(d)
			waiting(p.Document)
			p.Schedule.Kind = checkpoint.ReleaseExternal
		}, backend.ErrInvalidMutation},
		{"an unknown type", func(_ *run.Document, p *run.Proposal) { p.Type = "" }, backend.ErrInvalidMutation},
		{"a document that may not be stored", func(_ *run.Document, p *run.Proposal) { p.Document.Reason = "why" }, backend.ErrInvalidMutation},
		{"an event of another run", func(_ *run.Document, p *run.Proposal) { p.Events[0].Run = "b" }, backend.ErrInvalidMutation},
		{"unequal events", func(_ *run.Document, p *run.Proposal) { p.Events[0].Seq = 4 }, backend.ErrEventConflict},
	} {
		current, p := first().Document, second().Proposal
		c.edit(current, &p)
		_, err := backend.CheckMutation(current, p, value.Limits{})
		answers(t, c.name, err, c.want)
	}
}

func TestT1IdentityIsImmutable(t *testing.T) {
	stored := backend.IdentityOf(first().Document)
	for name, edit := range map[string]func(d *run.Document){
		"graph id":   func(d *run.Document) { d.Graph.ID = "g2" },
		"graph hash": func(d *run.Document) { d.Graph.Hash = "h2" },
		"started-at": func(d *run.Document) { d.StartedAt = start.Add(time.Microsecond) },
	} {
		d := second().Document
		edit(d)
		answers(t, name, backend.CheckIdentity(stored, d), backend.ErrInvalidCommit)
	}
	same := second().Document
	same.StartedAt = start.Add(999 * time.Nanosecond).In(elsewhere)
	answers(t, "the same instant", backend.CheckIdentity(stored, same), nil)
}

// A2: no instant reaches a store that is not UTC in whole microseconds.
func TestA2InstantsAreNormalized(t *testing.T) {
	odd := start.Add(999 * time.Nanosecond).In(elsewhere)
	c := second()
	d := c.Document
	d.StartedAt, d.UpdatedAt = odd, odd
	d.Pending = []string{"asks"}
	snapshot := []run.Channel(nil)
	d.Interrupts = []run.Interrupt{
		{ID: "answered", Node: "n", Status: run.InterruptResolved, RequestedAt: odd, ResolvedAt: odd},
		{ID: "open", Node: "asks", Status: run.InterruptOpen, RequestedAt: odd, Deadline: odd},
	}
	d.Tasks = []run.Task{{ID: "a:2:n", Node: "n", Snapshot: snapshot, InputHash: emptyHash(t), PlannedAt: odd, Reason: run.ParkSnooze}}
	d.Timers = []run.Timer{{Kind: run.TimerInterrupt, Key: "open", At: odd}, {Kind: run.TimerTask, Key: "a:2:n", At: odd}}
	c.Now, c.Schedule = odd, checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: odd}
	c.Events[0].At, c.Events[1].Wake = odd, odd

	given := fmt.Sprintf("%+v", *d)
	checked, err := backend.CheckCommit(backend.System(), c, value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if given != fmt.Sprintf("%+v", *d) || c.Events[0].At != odd {
		t.Error("the check modified what it was given")
	}
	found := 0
	for name, got := range map[string]time.Time{
		"now": checked.Now, "schedule": checked.Schedule.At, "started-at": checked.Document.StartedAt, "updated-at": checked.Document.UpdatedAt,
		"planned-at": checked.Document.Tasks[0].PlannedAt, "timer": checked.Document.Timers[0].At, "other timer": checked.Document.Timers[1].At,
		"requested-at": checked.Document.Interrupts[0].RequestedAt, "resolved-at": checked.Document.Interrupts[0].ResolvedAt,
		"deadline": checked.Document.Interrupts[1].Deadline, "event": checked.Events[0].At, "event's wake": checked.Events[1].Wake,
	} {
		found++
		if got != start {
			t.Errorf("%s is %v, want %v", name, got, start)
		}
	}
	if found != 12 {
		t.Errorf("%d instants were looked at", found)
	}
}

// emptyHash is the input hash of a task that reads nothing.
func emptyHash(t *testing.T) string {
	t.Helper()
	return value.Hash(value.Value(`{}`))
}

func TestE1EqualEventsCollapse(t *testing.T) {
	c := second()
	again := c.Events[0]
	again.At = again.At.In(elsewhere)
	c.Events = []run.Event{c.Events[1], c.Events[0], again}
	given := append([]run.Event(nil), c.Events...)
	checked, err := backend.CheckCommit(backend.System(), c, value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second().Events, checked.Events); diff != "" {
		t.Errorf("the checked events (- want, + got):\n%s", diff)
	}
	if diff := cmp.Diff(given, c.Events); diff != "" {
		t.Errorf("the check modified what it was given:\n%s", diff)
	}
}

func TestH26SizesOverTheLimitAreTypedAndPermanent(t *testing.T) {
	_, err := backend.CheckCommit(backend.System(), second(), value.Limits{Document: 10})
	answers(t, "a large document", err, backend.ErrInvalidCommit)
	var limit *value.LimitError
	if !errors.As(err, &limit) || limit.What != "document" || limit.Limit != 10 {
		t.Errorf("a large document answered %v", err)
	}
	if n := backend.Classify(err); n != backend.Permanent {
		t.Errorf("its nature is %v", n)
	}
	_, err = backend.CheckCommit(backend.System(), second(), value.Limits{EventPayload: 10})
	if !errors.As(err, &limit) || limit.What != "event payload" {
		t.Errorf("a large event answered %v", err)
	}
}

func TestX4AndX10NeedTheirFeatures(t *testing.T) {
	p := claim.Policy{Limit: 1, MaxAttempts: 1}
	filtered, capped := p, p
	filtered.Filter.Runs = []string{"a"}
	capped.OwnerCap = 1
	for _, c := range []struct {
		name string
		p    claim.Policy
		f    backend.Features
		want error
	}{
		{"plain", p, backend.Features{}, nil},
		{"a filter", filtered, backend.Features{OwnerCap: true}, backend.ErrUnsupported},
		{"a filter that is offered", filtered, backend.Features{ClaimFilter: true}, nil},
		{"a cap", capped, backend.Features{ClaimFilter: true}, backend.ErrUnsupported},
		{"a cap that is offered", capped, backend.Features{OwnerCap: true}, nil},
	} {
		_, err := backend.CheckPolicy(c.p, c.f)
		answers(t, c.name, err, c.want)
	}
}

func TestA1ReadsAreChecked(t *testing.T) {
	sys, none := backend.System(), backend.Tenantless()
	query := func(q backend.Query) error { _, err := backend.CheckQuery(sys, q); return err }
	versions := func(q backend.GraphQuery) error { _, err := backend.CheckGraphQuery(none, "g", q); return err }
	prune := func(p backend.PrunePolicy) error { _, err := backend.CheckPrune(p); return err }
	for _, c := range []struct {
		name string
		err  error
		bad  bool
	}{
		{"a page", query(backend.Query{Limit: 1}), false},
		{"the largest page", query(backend.Query{Limit: backend.MaxLimit}), false},
		{"an empty page", query(backend.Query{}), true},
		{"too large a page", query(backend.Query{Limit: backend.MaxLimit + 1}), true},
		{"a filter by created", query(backend.Query{Limit: 1, Statuses: []run.Status{run.Created}}), true},
		{"a filter by a long graph", query(backend.Query{Limit: 1, GraphID: long}), true},
		{"a filter by a long hash", query(backend.Query{Limit: 1, GraphHash: long}), true},
		{"a cursor", query(backend.Query{Limit: 1, Before: backend.Cursor{StartedAt: start, Run: "a"}}), false},
		{"a cursor without a run", query(backend.Query{Limit: 1, Before: backend.Cursor{StartedAt: start}}), false},
		{"a cursor without an instant", query(backend.Query{Limit: 1, Before: backend.Cursor{Run: "a"}}), true},
		{"a long cursor", query(backend.Query{Limit: 1, Before: backend.Cursor{StartedAt: start, Run: long}}), true},
		{"events", backend.CheckEventQuery(sys, "a", backend.EventQuery{Limit: 1}), false},
		{"events after a negative one", backend.CheckEventQuery(sys, "a", backend.EventQuery{After: -1, Limit: 1}), true},
		{"an event", backend.CheckEvent(sys, "a", 1), false},
		{"event 0", backend.CheckEvent(sys, "a", 0), true},
		{"versions", versions(backend.GraphQuery{Limit: 1}), false},
		{"versions after half a cursor", versions(backend.GraphQuery{Limit: 1, Before: backend.GraphCursor{Hash: "h"}}), true},
		{"no versions", versions(backend.GraphQuery{}), true},
		{"retention", prune(backend.PrunePolicy{Before: start, Limit: 1, Statuses: []run.Status{run.Done}}), false},
		{"retention of everything", prune(backend.PrunePolicy{Limit: 1}), true},
		{"retention of nothing", prune(backend.PrunePolicy{Before: start}), true},
		{"retention of running runs", prune(backend.PrunePolicy{Before: start, Limit: 1, Statuses: []run.Status{run.Running}}), true},
		{"an empty graph", backend.CheckSaveGraph(none, graph.Ref{ID: "g", Hash: "h"}, nil), true},
		{"a mutation without a function", backend.CheckMutate(sys, "a", "c", nil), true},
		{"a claim without a token", backend.CheckClaim("a", ""), true},
	} {
		if got := errors.Is(c.err, backend.ErrInvalidArgument); got != c.bad || !got && c.err != nil {
			t.Errorf("%s answered %v", c.name, c.err)
		}
	}
}

func TestG1TheHashIsTheDigest(t *testing.T) {
	raw := value.Value(`{}`)
	good := graph.Ref{ID: "g", Hash: value.Hash(raw)}
	answers(t, "the digest", backend.CheckSaveGraph(backend.Tenantless(), good, raw), nil)
	answers(t, "another hash", backend.CheckSaveGraph(backend.Tenantless(), ref, raw), backend.ErrInvalidGraphHash)
	answers(t, "stored bytes", backend.VerifyGraph(good, raw), nil)
	answers(t, "damaged bytes", backend.VerifyGraph(good, value.Value(`[]`)), backend.ErrCorruptGraph)
}

func TestTheZeroScopeIsNeverTheSystem(t *testing.T) {
	acme := backend.Tenant("acme")
	for _, c := range []struct {
		name  string
		scope backend.Scope
		valid bool
		sees  []backend.Owner
	}{
		{"zero", backend.Scope{}, false, nil},
		{"of the zero owner", backend.Of(backend.Owner{}), false, nil},
		{"of an empty tenant", backend.Of(backend.Tenant("")), false, nil},
		{"system", backend.System(), true, []backend.Owner{acme, backend.Tenantless()}},
		{"tenantless", backend.Of(backend.Tenantless()), true, []backend.Owner{backend.Tenantless()}},
		{"acme", backend.Of(acme), true, []backend.Owner{acme}},
	} {
		err := c.scope.Validate()
		if (err == nil) != c.valid || err != nil && !errors.Is(err, backend.ErrInvalidArgument) {
			t.Errorf("%s: validated as %v", c.name, err)
		}
		for _, o := range []backend.Owner{acme, backend.Tenantless()} {
			want := false
			for _, s := range c.sees {
				want = want || s == o
			}
			if c.scope.Sees(o) != want {
				t.Errorf("%s: sees %v is %v", c.name, o, !want)
			}
		}
	}
}

func TestA6ErrorsAreClassified(t *testing.T) {
	infra := func(n backend.Nature, err error) error {
		return fmt.Errorf("while claiming: %w", &backend.InfrastructureError{Op: "claim", Nature: n, Err: err})
	}
	for _, c := range []struct {
		err  error
		want backend.Nature
	}{
		{nil, backend.Permanent},
		{fmt.Errorf("x: %w", backend.ErrNotFound), backend.Permanent},
		{&checkpoint.FenceError{}, backend.Permanent},
		{&backend.ArgumentError{}, backend.Permanent},
		{&backend.CorruptError{Run: "a", What: "document", Err: &run.FormatError{}}, backend.Permanent},
		{backend.ErrClosed, backend.Permanent},
		{&value.LimitError{}, backend.Permanent},
		{fmt.Errorf("x: %w", backend.ErrBusy), backend.Transient},
		{infra(backend.Transient, errors.New("reset before it was sent")), backend.Transient},
		{infra(backend.Transient, context.Canceled), backend.Transient},
		{infra(backend.Unknown, errors.New("reset after it was sent")), backend.Unknown},
		{infra(backend.Permanent, errors.New("disk is read-only")), backend.Permanent},
		{fmt.Errorf("x: %w", context.Canceled), backend.Unknown},
		{context.DeadlineExceeded, backend.Unknown},
		{errors.New("who knows"), backend.Unknown},
	} {
		if got := backend.Classify(c.err); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
}

func TestACorruptRowIsNotAnAbsentOne(t *testing.T) {
	err := fmt.Errorf("fetching: %w", &backend.CorruptError{Run: "a", What: "document", Err: &run.FormatError{Format: 99}})
	if !errors.Is(err, backend.ErrCorrupt) || !errors.Is(err, run.ErrFormat) || errors.Is(err, backend.ErrNotFound) {
		t.Errorf("%v matches the wrong errors", err)
	}
}
