package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// faults are what goes wrong once. All of them are cured by sending the statement again.
var faults = map[string]fault{
	"connection lost before the statement":                  {},
	"connection lost when the server has completed it":      {answered: true},
	"connection lost when the server has committed it":      {answered: true, settled: true},
	"serialization failure":                                 {code: "40001"},
	"deadlock":                                              {code: "40P01"},
	"lock timeout":                                          {code: "55P03"},
	"too many connections":                                  {code: "53300"},
	"session ended by the administrator, outcome not known": {code: "57P01"},
}

// TestH20H24AFailureAtAnyStatementLeavesOneEffect (H20, H24): a failure at any one statement of an operation leaves
// one effect, and is not told.
func TestH20H24AFailureAtAnyStatementLeavesOneEffect(t *testing.T) {
	p, dsn := newProxy(t)
	a := through(t, dsn, pgx.QueryExecModeCacheStatement)
	s := newStore(t, a, postgres.Options{PollOnly: true})
	ctx, system := t.Context(), backend.System()
	serial := 0
	start := func(t *testing.T) (backend.Initialization, claim.Token) {
		t.Helper()
		serial++
		in := draft(fmt.Sprintf("run-%d", serial), func(in *backend.Initialization) {
			in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
		})
		got, err := s.InsertRun(ctx, backend.Tenantless(), in)
		if err != nil {
			t.Fatal(err)
		}
		return in, got.Lease.Token
	}
	fresh := func(edit ...func(*backend.Initialization)) backend.Initialization {
		serial++
		return draft(fmt.Sprintf("run-%d", serial), edit...)
	}
	inspect := func(t *testing.T, id string) backend.Info {
		t.Helper()
		info, err := s.InspectRun(ctx, system, id)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	finished := func(t *testing.T, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if d := inspect(t, id).Document; d.Status != run.Done || d.Seq != 2 {
				t.Errorf("%s is %s at %d", id, d.Status, d.Seq)
			}
		}
	}
	// Each prepares with no fault, and answers what is then done under one, and looked at after.
	operations := map[string]func(t *testing.T) (do func() error, look func()){
		"insert": func(t *testing.T) (func() error, func()) {
			in := fresh()
			return func() error { _, err := s.InsertRun(ctx, backend.Tenantless(), in); return err },
				func() { inspect(t, in.Document.ID) }
		},
		"keyed insert": func(t *testing.T) (func() error, func()) {
			in := fresh(func(in *backend.Initialization) { in.Key = in.Document.ID })
			return func() error {
					got, err := s.InsertRun(ctx, backend.Tenantless(), in)
					if err == nil && (got.Existing || got.Run != in.Document.ID) {
						err = fmt.Errorf("it answered %+v", got)
					}
					return err
				},
				func() { inspect(t, in.Document.ID) }
		},
		"inserts": func(t *testing.T) (func() error, func()) {
			ins := []backend.Initialization{fresh(), fresh()}
			return func() error {
					got := s.InsertRuns(ctx, backend.Tenantless(), ins)
					return errors.Join(got[0].Err, got[1].Err)
				},
				func() { inspect(t, ins[0].Document.ID); inspect(t, ins[1].Document.ID) }
		},
		"commit": func(t *testing.T) (func() error, func()) {
			in, token := start(t)
			return func() error { _, err := s.Commit(ctx, system, ending(in.Document, token)); return err },
				func() { finished(t, in.Document.ID) }
		},
		"commits": func(t *testing.T) (func() error, func()) {
			x, tx := start(t)
			y, ty := start(t)
			return func() error {
					got := s.Commits(ctx, system, []backend.Commit{ending(x.Document, tx), ending(y.Document, ty)})
					return errors.Join(got[0].Err, got[1].Err)
				},
				func() { finished(t, x.Document.ID, y.Document.ID) }
		},
		"mutate": func(t *testing.T) (func() error, func()) {
			in, _ := start(t)
			return func() error {
					_, err := s.MutateRun(ctx, system, in.Document.ID, "mutation", func(d *run.Document) (backend.Mutation, error) {
						proposal := ending(d, "").Proposal
						return backend.Mutation{Proposal: &proposal}, nil
					})
					return err
				},
				func() { finished(t, in.Document.ID) }
		},
		"refresh": func(t *testing.T) (func() error, func()) {
			in, token := start(t)
			later := began.Add(time.Second)
			return func() error { return s.RefreshClaim(ctx, in.Document.ID, token, later) },
				func() {
					if at := inspect(t, in.Document.ID).ClaimedAt; !at.Equal(later) {
						t.Errorf("claimed at %v", at)
					}
				}
		},
		"release": func(t *testing.T) (func() error, func()) {
			in, token := start(t)
			return func() error {
					return s.ReleaseClaim(ctx, in.Document.ID, token, claim.ReleasePolicy{Now: began, Refund: true, After: time.Hour})
				},
				func() {
					if info := inspect(t, in.Document.ID); !info.Wake.Equal(began.Add(time.Hour)) || info.Attempts != 0 {
						t.Errorf("wake %v, attempts %d", info.Wake, info.Attempts)
					}
				}
		},
		"abandon": func(t *testing.T) (func() error, func()) {
			in, token := start(t)
			return func() error {
					_, err := s.AbandonClaim(ctx, in.Document.ID, token, claim.AbandonPolicy{Now: began, ExpectedSeq: 1, MaxAbandons: 3, RetryAfter: time.Hour})
					return err
				},
				func() {
					if info := inspect(t, in.Document.ID); info.Abandons != 1 || info.Attempts != 0 {
						t.Errorf("abandons %d, attempts %d", info.Abandons, info.Attempts)
					}
				}
		},
		"refreshes": func(t *testing.T) (func() error, func()) {
			x, tx := start(t)
			y, ty := start(t)
			later := began.Add(time.Second)
			return func() error {
					return errors.Join(s.RefreshClaims(ctx, []backend.Held{{Run: x.Document.ID, Token: tx}, {Run: y.Document.ID, Token: ty}}, later)...)
				},
				func() {
					for _, id := range []string{x.Document.ID, y.Document.ID} {
						if at := inspect(t, id).ClaimedAt; !at.Equal(later) {
							t.Errorf("%s is claimed at %v", id, at)
						}
					}
				}
		},
		"recover": func(t *testing.T) (func() error, func()) {
			in, token := start(t)
			id := in.Document.ID
			d, err := s.AbandonClaim(ctx, id, token, claim.AbandonPolicy{Now: began, ExpectedSeq: 1, MaxAbandons: 1})
			if err != nil || d != claim.Rescheduled {
				t.Fatal(d, err)
			}
			p := claim.Policy{Now: began, TTL: time.Minute, Limit: 1, MaxAttempts: 3, Filter: claim.Filter{Runs: []string{id}}}
			batch, err := s.ClaimDue(ctx, p)
			if err != nil || len(batch.Leases) != 1 {
				t.Fatal(batch, err)
			}
			if d, err = s.AbandonClaim(ctx, id, batch.Leases[0].Token, claim.AbandonPolicy{Now: began, ExpectedSeq: 1, MaxAbandons: 1}); err != nil || d != claim.Poisoned {
				t.Fatal(d, err)
			}
			return func() error { return s.RetryPoisonedRun(ctx, system, id, began.Add(time.Hour)) },
				func() {
					if info := inspect(t, id); !info.Wake.Equal(began.Add(time.Hour)) || info.Abandons != 0 || !info.Poison.At.IsZero() {
						t.Errorf("recovered it is %+v", info)
					}
				}
		},
		"publish": func(t *testing.T) (func() error, func()) {
			serial++
			raw := value.Value(fmt.Sprintf(`{"id":"proof","n":%d}`, serial))
			ref := graph.Ref{ID: "proof", Hash: value.Hash(raw)}
			return func() error { return s.SaveGraph(ctx, backend.Tenantless(), ref, raw) },
				func() {
					if got, err := s.FetchGraph(ctx, backend.Tenantless(), ref); err != nil || string(got) != string(raw) {
						t.Errorf("published is %s, %v", got, err)
					}
				}
		},
		"reads": func(t *testing.T) (func() error, func()) {
			in, _ := start(t)
			return func() error {
				page, err := s.ListEvents(ctx, system, in.Document.ID, backend.EventQuery{Limit: 10})
				if err == nil && len(page.Events) != 2 {
					err = fmt.Errorf("%d events", len(page.Events))
				}
				_, listing := s.ListRuns(ctx, system, backend.Query{Limit: 10})
				_, clock := s.Now(ctx)
				return errors.Join(err, listing, clock)
			}, func() {}
		},
	}
	for name, prepare := range operations {
		t.Run(name, func(t *testing.T) {
			for trouble, f := range faults {
				fired := true
				for f.after = 0; fired; f.after++ {
					do, look := prepare(t)
					p.arm(f)
					err := do()
					if fired = p.disarm(); err != nil {
						t.Errorf("%s, at statement %d: %v", trouble, f.after+1, err)
					}
					look()
				}
				if f.after < 2 {
					t.Errorf("%s did not come about", trouble)
				}
			}
		})
	}
	for f, err := range s.Audit(ctx, backend.AuditPolicy{}) {
		t.Errorf("the audit finds %+v, %v", f, err)
	}
}

// TestH20AClaimWhoseAnswerIsLost (X1): is of unknown outcome, and costs one TTL and one attempt, in one statement
// as in a transaction, and however statements are sent. Nothing is claimed twice by one call.
func TestH20AClaimWhoseAnswerIsLost(t *testing.T) {
	p, dsn := newProxy(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for _, fairness := range []claim.Fairness{claim.OldestFirst, claim.Interleave} {
			t.Run(fmt.Sprintf("%v/%v", mode, fairness), func(t *testing.T) {
				s := newStore(t, through(t, dsn, mode), postgres.Options{PollOnly: true})
				policy := claim.Policy{Now: began, Limit: 10, MaxAttempts: 99, Fairness: fairness}
				unknown := 0
				fired := true
				for f := (fault{answered: true, settled: true}); fired; f.after++ {
					id := fmt.Sprintf("run-%d", f.after)
					if _, err := s.InsertRun(t.Context(), backend.Tenantless(), draft(id)); err != nil {
						t.Fatal(err)
					}
					policy.Filter, policy.TTL = claim.Filter{}, time.Minute
					p.arm(f)
					batch, err := s.ClaimDue(t.Context(), policy)
					fired = p.disarm()
					info, looking := s.InspectRun(t.Context(), backend.System(), id)
					if looking != nil {
						t.Fatal(looking)
					}
					switch {
					case err == nil && len(leasesOf(batch, id)) == info.Attempts && info.Attempts <= 1:
						// None is of a transaction that the server has not rolled back yet, whose rows are locked.
					case err != nil && backend.Classify(err) == backend.Unknown && info.Attempts == 1:
						unknown++
						policy.TTL = 0 // it may be taken over
						later := policy
						later.Now = began.Add(time.Microsecond)
						later.Filter = claim.Filter{Runs: []string{id}}
						if batch, err := s.ClaimDue(t.Context(), later); err != nil || len(batch.Leases) != 1 || batch.Leases[0].Attempt != 2 {
							t.Errorf("after the TTL: %+v, %v", batch, err)
						}
					default:
						t.Errorf("answered %+v, %v (%v), when statement %d lost its connection; %d attempts are stored", batch, err, backend.Classify(err), f.after+1, info.Attempts)
					}
				}
				if unknown != 1 {
					t.Errorf("%d outcomes were unknown, of the one statement that stores", unknown)
				}
			})
		}
	}
}

func leasesOf(batch claim.Batch, id string) []claim.Lease {
	return slices.DeleteFunc(batch.Leases, func(l claim.Lease) bool { return l.Run != id })
}
