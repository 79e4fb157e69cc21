package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// What the conformance cases of a hazard cannot bring about on one connection.

// start stores runs of an owner that are due, or claimed when edit says so.
func start(t *testing.T, s *postgres.Store, owner backend.Owner, ids []string, edit ...func(*backend.Initialization)) (ins []backend.Initialization, leases []claim.Lease) {
	t.Helper()
	ref, raw := aGraph()
	if err := s.SaveGraph(t.Context(), owner, ref, raw); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		ins = append(ins, draft(id, edit...))
	}
	for n := 0; n < len(ins); n += 500 {
		for _, got := range s.InsertRuns(t.Context(), owner, ins[n:min(n+500, len(ins))]) {
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if got.Lease != nil {
				leases = append(leases, *got.Lease)
			}
		}
	}
	return ins, leases
}

func named(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%05d", prefix, i))
	}
	return ids
}

func claimed(in *backend.Initialization) {
	in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
}

// stepping is a commit that keeps its claim.
func stepping(d *run.Document, token claim.Token) backend.Commit {
	c := ending(d, token)
	c.Document.Status, c.Document.FinishedAt, c.Document.Output, c.Document.EventSeq = run.Running, time.Time{}, nil, d.EventSeq+1
	c.Type, c.Schedule.Kind = checkpoint.StepCommitted, checkpoint.Retain
	c.Events = []run.Event{closing(d.ID, d.EventSeq+1, d.Seq+1, checkpoint.StepCommitted)}
	return c
}

func due(t *testing.T, s *postgres.Store, p claim.Policy) claim.Batch {
	t.Helper()
	batch, err := s.ClaimDue(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func runsOf(b claim.Batch) (ids []string) {
	for _, l := range b.Leases {
		ids = append(ids, l.Run)
	}
	return ids
}

// TestH1AStaleSweepChangesNothing: sweepers claim what has expired while its holders commit. A
// statement that noted a run as expired and then finds it finished, or held anew, leaves it.
func TestH1AStaleSweepChangesNothing(t *testing.T) {
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	other := newStore(t, a, postgres.Options{Schema: s.Schema()})
	ids := named("run", 200)
	ins, leases := start(t, s, backend.Tenantless(), ids, claimed)
	committed, swept := make([]bool, len(ids)), map[string]int{}
	p := claim.Policy{Now: began.Add(time.Hour), TTL: time.Minute, Limit: 7, MaxAttempts: 9}
	var all sync.WaitGroup
	all.Go(func() {
		for i, l := range leases {
			_, err := s.Commit(t.Context(), backend.System(), ending(ins[i].Document, l.Token))
			if committed[i] = err == nil; err != nil && !errors.Is(err, checkpoint.ErrStaleFence) {
				t.Errorf("the commit of %s: %v", l.Run, err)
			}
		}
	})
	var mu sync.Mutex
	for range 2 {
		all.Go(func() {
			for range 20 {
				batch, err := other.ClaimDue(t.Context(), p)
				if err != nil {
					t.Errorf("a sweep: %v", err)
					return
				}
				mu.Lock()
				for _, id := range runsOf(batch) {
					swept[id]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		if n := swept[id]; committed[i] && n != 0 || n > 1 {
			t.Errorf("%s was swept %d times, and its holder's commit succeeded: %v", id, n, committed[i])
		}
		if d, err := s.FetchRun(t.Context(), backend.System(), id); err != nil || (d.Status == run.Done) != committed[i] {
			t.Errorf("%s is %+v, %v", id, d, err)
		}
	}
}

// TestH4BadRowsDoNotStandInTheWay: at the head of the queue are a run that cannot be decoded and a page
// of runs that are locked. Within two polls all others are claimed; the bad one is reported, and not
// handed out again at once.
func TestH4BadRowsDoNotStandInTheWay(t *testing.T) {
	a := direct(t)
	for _, fairness := range []claim.Fairness{claim.OldestFirst, claim.Interleave} {
		s := newStore(t, a, postgres.Options{})
		ids := named("run", 31)
		start(t, s, backend.Tenantless(), ids)
		if _, err := a.raw.Exec(t.Context(), "update "+nameOf(s, "runs")+" set document = 'garbage' where id = $1", ids[0]); err != nil {
			t.Fatal(err)
		}
		defer lockRuns(t, a, s, ids[1:11])()
		p := claim.Policy{Now: began.Add(time.Second), TTL: time.Minute, Limit: 15, MaxAttempts: 3, Fairness: fairness}
		var got, bad []string
		for range 3 {
			batch, err := s.ClaimDueDocuments(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range batch.Leases {
				if batch.Documents[i].Err != nil {
					bad = append(bad, l.Run)
				} else {
					got = append(got, l.Run)
				}
			}
			if len(got)+len(bad) == 15 && len(bad) != 1 {
				t.Errorf("the first batch reports %v", bad)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, ids[11:]) || !slices.Equal(bad, ids[:1]) {
			t.Errorf("by %v claimed are %v, and reported %v", fairness, got, bad)
		}
	}
}

// lockRuns locks rows as another transaction does.
func lockRuns(t *testing.T, a access, s *postgres.Store, ids []string) (unlock func()) {
	t.Helper()
	tx, err := a.raw.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from "+nameOf(s, "runs")+" where id = any ($1) for update", ids); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
}

// TestH6CountersAreExact: with up to three attempts and two abandons the number of launches is what
// the contract says, for crashes, for errors that are given back, and for abandons in between.
func TestH6CountersAreExact(t *testing.T) {
	s := newStore(t, direct(t), postgres.Options{})
	for attempts := 1; attempts <= 3; attempts++ {
		for abandons := 1; abandons <= 2; abandons++ {
			for _, how := range []string{"crashes", "errors", "abandons", "mixed"} {
				id := fmt.Sprintf("%d-%d-%s", attempts, abandons, how)
				start(t, s, backend.Tenantless(), []string{id})
				launches, handedBack := 0, 0
				p := claim.Policy{Now: began, TTL: time.Second, Limit: 1, MaxAttempts: attempts, Filter: claim.Filter{Runs: []string{id}}}
				var reason string
				for reason == "" {
					p.Now = p.Now.Add(time.Minute)
					batch := due(t, s, p)
					if len(batch.Leases) == 0 {
						reason = batch.Poisoned[0].Poison.Reason
						continue
					}
					l := batch.Leases[0]
					launches++
					switch {
					case how == "errors" || how == "mixed" && launches%2 == 0:
						if err := s.ReleaseClaim(t.Context(), id, l.Token, claim.ReleasePolicy{Now: p.Now}); err != nil {
							t.Fatal(err)
						}
					case how == "abandons" || how == "mixed" && launches == 1:
						d, err := s.AbandonClaim(t.Context(), id, l.Token, claim.AbandonPolicy{Now: p.Now, ExpectedSeq: 1, MaxAbandons: abandons})
						if err != nil {
							t.Fatal(err)
						}
						if handedBack++; d == claim.Poisoned {
							reason = claim.MaxAbandonsExceeded
						}
					}
				}
				want, why := attempts, claim.MaxAttemptsExceeded
				switch how {
				case "abandons":
					want, why = abandons+1, claim.MaxAbandonsExceeded
				case "mixed":
					want = attempts + 1
				}
				if launches != want || reason != why {
					t.Errorf("%s: %d launches, poisoned for %s; there must be %d, for %s", id, launches, reason, want, why)
				}
				if info, err := s.InspectRun(t.Context(), backend.System(), id); err != nil || info.Attempts+handedBack != launches {
					t.Errorf("%s: %d attempts are counted of %d launches, %d of which were handed back, %v", id, info.Attempts, launches, handedBack, err)
				}
			}
		}
	}
}

// TestH8IDsThatAreNoneReachNoStatement: in the host's transaction, too, an id that is empty, too long, not
// UTF-8 or has a NUL is refused before the server is asked, which would end the transaction.
func TestH8IDsThatAreNoneReachNoStatement(t *testing.T) {
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	tx, err := a.pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	host, ctx, system := s.WithTx(tx), t.Context(), backend.System()
	for _, id := range []string{"", strings.Repeat("x", 256), "\xff", "a\x00b"} {
		_, asRun := host.InsertRun(ctx, backend.Tenantless(), draft(id))
		_, asTenant := host.InsertRun(ctx, backend.Tenant(id), draft("a"))
		errs := map[string]error{"run": asRun, "tenant": asTenant}
		if id != "" { // an empty key is none
			_, errs["key"] = host.InsertRun(ctx, backend.Tenantless(), draft("a", keyed(id)))
		}
		_, errs["fetch"] = host.FetchRun(ctx, system, id)
		_, errs["inspect"] = s.InspectRun(ctx, system, id)
		_, errs["scope"] = s.ListRuns(ctx, backend.Of(backend.Tenant(id)), backend.Query{Limit: 1})
		errs["token"] = s.RefreshClaim(ctx, "a", claim.Token(id), began)
		errs["tokens"] = s.RefreshClaims(ctx, []backend.Held{{Run: "a", Token: claim.Token(id)}}, began)[0]
		errs["release"] = s.ReleaseClaim(ctx, id, "token", claim.ReleasePolicy{})
		_, errs["commit"] = s.Commit(ctx, system, ending(draft("a").Document, claim.Token(id)))
		_, errs["filter"] = s.ClaimDue(ctx, claim.Policy{Limit: 1, MaxAttempts: 1, Filter: claim.Filter{Runs: []string{id}}})
		for what, err := range errs {
			if !errors.Is(err, backend.ErrInvalidArgument) && !errors.Is(err, backend.ErrInvalidCommit) {
				t.Errorf("the id %.10q as %s: %v", id, what, err)
			}
		}
	}
	if _, err := host.InsertRun(ctx, backend.Tenantless(), draft("a")); err != nil {
		t.Errorf("a start after refused ones: %v", err)
	}
}

// TestH9PoisonIsLonely: the middle one of three runs is poisoned by the claim that leases the others,
// which finish together; each is recovered by one call.
func TestH9PoisonIsLonely(t *testing.T) {
	s := newStore(t, direct(t), postgres.Options{})
	ids := named("run", 3)
	start(t, s, backend.Tenantless(), ids)
	ctx, p := t.Context(), claim.Policy{Now: began, TTL: time.Second, Limit: 3, MaxAttempts: 1}
	for _, l := range due(t, s, p).Leases {
		if l.Run != ids[1] { // this one crashes
			if err := s.ReleaseClaim(ctx, l.Run, l.Token, claim.ReleasePolicy{Now: began, Refund: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Now = began.Add(time.Minute)
	batch := due(t, s, p)
	if len(batch.Leases) != 2 || len(batch.Poisoned) != 1 || batch.Poisoned[0].Run != ids[1] {
		t.Fatalf("%+v", batch)
	}
	var group []backend.Commit
	for _, l := range batch.Leases {
		group = append(group, ending(draft(l.Run).Document, l.Token))
	}
	for _, got := range s.Commits(ctx, backend.System(), group) {
		if got.Err != nil {
			t.Error(got.Err)
		}
	}
	for i, id := range ids {
		if err := s.RetryPoisonedRun(ctx, backend.System(), id, p.Now); i == 1 && err != nil || i != 1 && !errors.Is(err, backend.ErrInactiveRun) {
			t.Errorf("recovering %s: %v", id, err)
		}
	}
	if got := runsOf(due(t, s, p)); !slices.Equal(got, ids[1:2]) {
		t.Errorf("after the recovery %v are due", got)
	}
}

// TestH10ARefreshBesideARetain: on two connections at once, in whatever order they come, claimed-at is
// the later of the two.
func TestH10ARefreshBesideARetain(t *testing.T) {
	s := newStore(t, direct(t), postgres.Options{})
	ins, leases := start(t, s, backend.Tenantless(), named("run", 60), claimed)
	for i, l := range leases {
		retain := stepping(ins[i].Document, l.Token)
		retain.Now = began.Add(time.Minute)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := s.Commit(t.Context(), backend.System(), retain); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if err := s.RefreshClaim(t.Context(), l.Run, l.Token, began.Add(time.Second)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if info, err := s.InspectRun(t.Context(), backend.System(), l.Run); err != nil || !info.ClaimedAt.Equal(began.Add(time.Minute)) {
			t.Fatalf("%s is claimed at %v, %v", l.Run, info.ClaimedAt, err)
		}
	}
}

// TestH11BatchesAreFullBesideLockedPages: two pages of the oldest candidates of both classes are locked;
// a claim takes from both classes behind them, claimers at once fill their batches, and no run is
// claimed twice.
func TestH11BatchesAreFullBesideLockedPages(t *testing.T) {
	a := direct(t)
	for how, p := range map[string]claim.Policy{
		"age": {}, "interleaving": {Fairness: claim.Interleave}, "a filter": {Filter: claim.Filter{Graphs: []claim.GraphFilter{{ID: "proof"}}}}, "a cap": {OwnerCap: 1000},
	} {
		s := newStore(t, a, postgres.Options{})
		ready, expired := named("ready", 300), named("expired", 300)
		start(t, s, backend.Tenantless(), ready)
		start(t, s, backend.Tenantless(), expired, claimed)
		defer lockRuns(t, a, s, append(slices.Clone(ready[:40]), expired[:40]...))()
		p.Now, p.TTL, p.Limit, p.MaxAttempts = began.Add(time.Hour), time.Minute, 20, 3
		first := runsOf(due(t, s, p))
		for _, class := range []string{"expired", "ready"} {
			if !slices.ContainsFunc(first, func(id string) bool { return strings.HasPrefix(id, class) }) {
				t.Errorf("by %s nothing is claimed of what is %s: %v", how, class, first)
			}
		}
		batches := make([][]string, 3)
		var all sync.WaitGroup
		for i := range batches {
			all.Go(func() {
				batch, err := s.ClaimDue(t.Context(), p)
				if err != nil {
					t.Error(err)
				}
				batches[i] = runsOf(batch)
			})
		}
		all.Wait()
		got := append(slices.Concat(batches...), first...)
		slices.Sort(got)
		if n := len(slices.Compact(slices.Clone(got))); n != 80 || len(got) != 80 {
			t.Errorf("by %s four claims of 20 gave %d outcomes of %d runs", how, len(got), n)
		}
	}
}

// TestH17CancelBesideComplete: in two stores at once; one wins, and the other gets a defined answer.
func TestH17CancelBesideComplete(t *testing.T) {
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	other := newStore(t, a, postgres.Options{Schema: s.Schema()})
	ins, leases := start(t, s, backend.Tenantless(), named("run", 60), claimed)
	wins := map[run.Status]int{}
	for i, l := range leases {
		var completed, cancelled error
		var both sync.WaitGroup
		complete := func() {
			_, completed = s.Commit(t.Context(), backend.System(), ending(ins[i].Document, l.Token))
		}
		cancel := func() {
			_, cancelled = other.MutateRun(t.Context(), backend.System(), l.Run, checkpoint.ID("cancel of "+l.Run), func(d *run.Document) (backend.Mutation, error) {
				if d.Status != run.Running {
					return backend.Mutation{}, run.ErrInactiveRun
				}
				next := ending(d, "").Proposal
				next.Document.Status, next.Document.Output, next.Type = run.Cancelled, nil, checkpoint.RunCancelled
				next.Events = []run.Event{closing(d.ID, d.EventSeq+1, d.Seq+1, checkpoint.RunCancelled)}
				next.Document.EventSeq = d.EventSeq + 1
				return backend.Mutation{Proposal: &next}, nil
			})
		}
		if i%3 != 0 {
			both.Go(complete)
			both.Go(cancel)
		} else {
			both.Go(cancel)
			both.Go(complete)
		}
		both.Wait()
		d, err := s.FetchRun(t.Context(), backend.System(), l.Run)
		if err != nil {
			t.Fatal(err)
		}
		wins[d.Status]++
		if won := completed == nil && errors.Is(cancelled, run.ErrInactiveRun) && d.Status == run.Done ||
			cancelled == nil && errors.Is(completed, checkpoint.ErrStaleFence) && d.Status == run.Cancelled; !won {
			t.Errorf("completion answered %v, cancel %v, and the run is %s", completed, cancelled, d.Status)
		}
	}
	t.Logf("won: %v", wins)
}

// TestH31FairnessAndSilence: behind ten thousand due runs of one tenant the single run of another one
// is in the first two batches; and nothing of the first shows to the second.
func TestH31FairnessAndSilence(t *testing.T) {
	s := newStore(t, direct(t), postgres.Options{})
	acme, globex := backend.Tenant("acme"), backend.Tenant("globex")
	many := named("secret-run", 10_000)
	start(t, s, acme, many)
	if _, err := s.InsertRun(t.Context(), acme, draft("secret-keyed", keyed("secret-key"))); err != nil {
		t.Fatal(err)
	}
	start(t, s, globex, []string{"only"}, func(in *backend.Initialization) {
		in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: began.Add(time.Hour)}
	})
	p := claim.Policy{Now: began.Add(2 * time.Hour), TTL: time.Minute, Limit: 10, MaxAttempts: 3, Fairness: claim.Interleave}
	if got := append(runsOf(due(t, s, p)), runsOf(due(t, s, p))...); !slices.Contains(got, "only") {
		t.Errorf("the first two batches are %v", got)
	}
	ctx, theirs := t.Context(), backend.Of(globex)
	page, err := s.ListRuns(ctx, theirs, backend.Query{Limit: 5})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].Run != "only" || page.HasMore {
		t.Errorf("the list is %+v, %v", page, err)
	}
	reads := map[string]func(id string) error{
		"fetch":   func(id string) error { _, err := s.FetchRun(ctx, theirs, id); return err },
		"inspect": func(id string) error { _, err := s.InspectRun(ctx, theirs, id); return err },
		"latest":  func(id string) error { _, err := s.LatestEvent(ctx, theirs, id); return err },
		"events": func(id string) error {
			_, err := s.ListEvents(ctx, theirs, id, backend.EventQuery{Limit: 5})
			return err
		},
		"recover": func(id string) error { return s.RetryPoisonedRun(ctx, theirs, id, began) },
		"commit": func(id string) error {
			_, err := s.Commit(ctx, theirs, ending(draft(id).Document, "token"))
			return err
		},
	}
	for name, read := range reads {
		there, absent := read(many[0]), read("secret-run-none")
		if !errors.Is(there, backend.ErrNotFound) || there.Error() != strings.ReplaceAll(absent.Error(), "secret-run-none", many[0]) {
			t.Errorf("%s of another tenant's run answers %v, and of none %v", name, there, absent)
		}
	}
	if got, err := s.InsertRun(ctx, globex, draft("mine", keyed("secret-key"))); err != nil || got.Existing {
		t.Errorf("a start under the key of another tenant: %+v, %v", got, err)
	}
	if _, err := s.InsertRun(ctx, globex, draft(many[0], func(in *backend.Initialization) { in.CheckpointID = "other" })); !errors.Is(err, backend.ErrConflict) ||
		strings.Contains(err.Error(), "acme") {
		t.Errorf("a start under the id of another tenant's run: %v", err)
	}
}

// TestH36CommittersHardlyFeelNotifications: 32 committers with notifications on, and with them off, in
// rounds that alternate: the medians differ by little. The bound is gross, since the machine is shared;
// the figure is printed.
func TestH36CommittersHardlyFeelNotifications(t *testing.T) {
	const committers, each, rounds = 32, 12, 5
	a := direct(t)
	s := newStore(t, a, postgres.Options{PollInterval: time.Hour})
	quiet := newStore(t, a, postgres.Options{Schema: s.Schema(), PollOnly: true, PollInterval: time.Hour})
	quiet.Silence()
	if _, err := s.Subscribe(t.Context()); err != nil {
		t.Fatal(err)
	}
	serial := 0
	round := func(s *postgres.Store) time.Duration {
		serial++
		ins, leases := start(t, s, backend.Tenantless(), named(fmt.Sprintf("run-%d", serial), committers*each), claimed)
		begun := time.Now()
		var all sync.WaitGroup
		for c := range committers {
			all.Go(func() {
				for i := c * each; i < (c+1)*each; i++ {
					next := stepping(ins[i].Document, leases[i].Token)
					next.Schedule.Kind = checkpoint.ReleaseNow // due again at once, which is what is told
					if _, err := s.Commit(t.Context(), backend.System(), next); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		return time.Since(begun)
	}
	var on, off []time.Duration
	round(s)
	for range rounds {
		on, off = append(on, round(s)), append(off, round(quiet))
	}
	slices.Sort(on)
	slices.Sort(off)
	ratio := float64(off[rounds/2]) / float64(on[rounds/2])
	t.Logf("with notifications %.2f of the commits a second without (%.0f and %.0f)", ratio,
		committers*each/on[rounds/2].Seconds(), committers*each/off[rounds/2].Seconds())
	if best := float64(off[0]) / float64(on[0]); max(ratio, best) < 0.7 && !raceDetector {
		t.Errorf("with notifications on committers reach %.2f of what they reach with them off", ratio)
	}
}
