package proptest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// badIDs are the identifiers that no operation accepts.
var badIDs = []struct{ name, id string }{
	{"empty", ""},
	{"of 256 bytes", strings.Repeat("x", 256)},
	{"with a NUL", "a\x00b"},
	{"not UTF-8", "a\xffb"},
	{"of 128 runes and 256 bytes", strings.Repeat("é", 128)},
}

// call is one operation with one argument that varies.
type call struct {
	name string
	with func(r *rig, id string) error
}

// A1: arguments are checked before anything is looked up.
var argumentCases = []Case{
	{
		ID: "A1.run-ids", Says: "an empty, oversized or malformed run id is an invalid argument of every operation that takes one",
		run: func(r *rig) { r.refuseIDs(runIDCalls) },
	},
	{
		ID: "A1.tokens", Says: "an empty, oversized or malformed token is an invalid argument, also of an unknown run",
		run: func(r *rig) { r.refuseIDs(tokenCalls) },
	},
	{
		ID: "A1.tenants", Says: "an empty, oversized or malformed tenant is an invalid argument as owner and as scope",
		run: func(r *rig) {
			r.refuseIDs(scoped(func(id string) (backend.Owner, backend.Scope) {
				return backend.Tenant(id), backend.Of(backend.Tenant(id))
			}))
		},
	},
	{
		ID: "A1.keys", Says: "an oversized or malformed start key is an invalid argument",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			for _, bad := range badIDs {
				if bad.id == "" {
					continue // the empty key is no key
				}
				r.invalid("InsertRun with a key "+bad.name, func() error {
					_, err := r.store.InsertRun(r.ctx, tenantless, r.draft("a", func(in *backend.Initialization) { in.Key = bad.id }))
					return err
				})
			}
			r.invalid("InsertRun with a negative window", func() error {
				_, err := r.store.InsertRun(r.ctx, tenantless, r.draft("a", func(in *backend.Initialization) { in.Key, in.Window = "k", -tick }))
				return err
			})
		},
	},
	{
		ID: "A1.checkpoint-ids", Says: "an empty, oversized or malformed checkpoint id is an invalid argument",
		run: func(r *rig) { r.refuseIDs(checkpointIDCalls) },
	},
	{
		ID: "A1.graph-ids", Says: "an empty, oversized or malformed graph id is an invalid argument",
		run: func(r *rig) { r.refuseIDs(graphIDCalls) },
	},
	{
		ID: "A1.zero-scope", Says: "the zero scope and the zero owner are invalid arguments everywhere, and never the system",
		run: func(r *rig) {
			r.put("a")
			for _, c := range scoped(func(string) (backend.Owner, backend.Scope) { return backend.Owner{}, backend.Scope{} }) {
				r.invalid(c.name, func() error { return c.with(r, "") })
			}
			for _, c := range scoped(func(string) (backend.Owner, backend.Scope) {
				return backend.Owner{}, backend.Of(backend.Owner{})
			}) {
				r.invalid(c.name+" of the zero owner", func() error { return c.with(r, "") })
			}
		},
	},
	{
		ID: "A1.limits", Says: "a limit below 1, and of a page above 1000, is an invalid argument",
		run: func(r *rig) {
			r.put("a")
			for _, limit := range []int{0, -1, backend.MaxLimit + 1} {
				r.invalid(fmt.Sprintf("ListRuns with the limit %d", limit), func() error {
					_, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: limit})
					return err
				})
				r.invalid(fmt.Sprintf("ListEvents with the limit %d", limit), func() error {
					_, err := r.store.ListEvents(r.ctx, backend.System(), "a", backend.EventQuery{Limit: limit})
					return err
				})
				r.invalid(fmt.Sprintf("GraphVersions with the limit %d", limit), func() error {
					_, err := r.store.GraphVersions(r.ctx, tenantless, r.ref.ID, backend.GraphQuery{Limit: limit})
					return err
				})
			}
		},
	},
	{
		ID: "A1.claim-policy", Says: "a limit, a maximum of attempts below 1 and a negative TTL are invalid arguments of ClaimDue",
		run: func(r *rig) {
			r.put("a")
			for name, edit := range map[string]func(*claim.Policy){
				"the limit 0":           func(p *claim.Policy) { p.Limit = 0 },
				"the limit -1":          func(p *claim.Policy) { p.Limit = -1 },
				"0 attempts at most":    func(p *claim.Policy) { p.MaxAttempts = 0 },
				"-1 attempts at most":   func(p *claim.Policy) { p.MaxAttempts = -1 },
				"a negative TTL":        func(p *claim.Policy) { p.TTL = -tick },
				"a negative cap":        func(p *claim.Policy) { p.OwnerCap = -1 },
				"an unknown preference": func(p *claim.Policy) { p.Prefer = claim.Expired + 1 },
				"an unknown fairness":   func(p *claim.Policy) { p.Fairness = claim.Interleave + 1 },
			} {
				p := r.policy(0)
				edit(&p)
				r.invalid("ClaimDue with "+name, func() error {
					_, err := r.store.ClaimDue(r.ctx, p)
					return err
				})
			}
		},
	},
	{
		ID: "A1.release-policy", Says: "a negative delay is an invalid argument of ReleaseClaim, also under a stale token",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			for _, token := range []claim.Token{l.Token, "stale"} {
				r.invalid("ReleaseClaim with a negative delay", func() error {
					return r.store.ReleaseClaim(r.ctx, "a", token, claim.ReleasePolicy{Now: r.start, After: -tick})
				})
			}
		},
	},
	{
		ID: "A1.abandon-policy", Says: "a maximum below 1, a backoff not 0 < base <= cap and a retry-at before now are invalid arguments of AbandonClaim, also when they would not be used",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			never := func(p *claim.AbandonPolicy, b claim.Backoff) { p.NeverPoison, p.Backoff = true, b }
			for name, edit := range map[string]func(*claim.AbandonPolicy){
				"0 abandons at most":                     func(p *claim.AbandonPolicy) { p.MaxAbandons = 0 },
				"-1 abandons at most":                    func(p *claim.AbandonPolicy) { p.MaxAbandons = -1 },
				"a negative retry-after":                 func(p *claim.AbandonPolicy) { p.RetryAt, p.RetryAfter = time.Time{}, -tick },
				"a retry-at a microsecond before now":    func(p *claim.AbandonPolicy) { p.RetryAt = p.Now.Add(-tick) },
				"a retry-at before now beside a backoff": func(p *claim.AbandonPolicy) { p.RetryAt = p.Now.Add(-tick); never(p, claim.Backoff{Base: 1, Cap: 1}) },
				"a backoff without a base":               func(p *claim.AbandonPolicy) { never(p, claim.Backoff{Cap: time.Second}) },
				"a backoff with a negative base":         func(p *claim.AbandonPolicy) { never(p, claim.Backoff{Base: -1, Cap: time.Second}) },
				"a backoff without a cap":                func(p *claim.AbandonPolicy) { never(p, claim.Backoff{Base: time.Second}) },
				"a backoff with a cap a step below base": func(p *claim.AbandonPolicy) { never(p, claim.Backoff{Base: time.Second, Cap: time.Second - tick}) },
				"a bad backoff that would not be used":   func(p *claim.AbandonPolicy) { p.Backoff = claim.Backoff{Base: -1, Cap: 1} },
			} {
				for _, token := range []claim.Token{l.Token, "stale"} {
					p := claim.AbandonPolicy{Now: r.at(time.Second), ExpectedSeq: 1, MaxAbandons: 3, RetryAt: r.at(time.Minute)}
					edit(&p)
					r.invalid("AbandonClaim with "+name, func() error {
						_, err := r.store.AbandonClaim(r.ctx, "a", token, p)
						return err
					})
				}
			}
		},
	},
	{
		ID: "A1.retry-at-now", Says: "a retry-at equal to now is valid",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			d, err := r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{Now: r.at(time.Second), ExpectedSeq: 1, MaxAbandons: 1, RetryAt: r.at(time.Second)})
			r.ok("AbandonClaim", err)
			if d != claim.Rescheduled {
				r.Errorf("AbandonClaim answered %v; it must reschedule", d)
			}
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Second), Abandons: 1})
		},
	},
	{
		ID: "A1.longest-ids", Says: "identifiers of 255 bytes are accepted and come back as they were",
		run: func(r *rig) {
			longest := strings.Repeat("x", 253) + "é"
			owner := backend.Tenant(longest)
			r.insert(owner, r.draft(longest, func(in *backend.Initialization) { in.Key = longest }))
			info := r.inspect(longest)
			if info.Owner != owner || info.Document.ID != longest {
				r.Errorf("the longest ids came back as %q of %q", info.Document.ID, info.Owner)
			}
			r.take(longest, 0)
		},
	},
	{
		ID: "A1.bytewise", Says: "identifiers are compared bytewise: neither case nor Unicode normalization nor white space makes two equal",
		run: func(r *rig) {
			ids := []string{"run", "Run", "RUN", "run ", " run", "\u00e9", "e\u0301", "\ufb01", "fi", "%", "_", "'", `\`}
			for i, id := range ids {
				r.putAt(id, r.at(time.Duration(i)*time.Second))
			}
			for i, id := range ids {
				r.expect(id, columns{Status: run.Running, Wake: r.at(time.Duration(i) * time.Second)})
			}
			for _, o := range []string{"acme", "ACME", "\u00e9", "e\u0301"} {
				r.putFor(backend.Tenant(o), "of "+o, r.start)
			}
			for _, o := range []string{"acme", "ACME", "\u00e9", "e\u0301"} {
				page, err := r.store.ListRuns(r.ctx, backend.Of(backend.Tenant(o)), backend.Query{Limit: 10})
				r.ok("ListRuns", err)
				if len(page.Runs) != 1 || page.Runs[0].Run != "of "+o {
					r.Errorf("the tenant %q sees %d runs", o, len(page.Runs))
				}
			}
		},
	},
	{
		ID: "A1.unknown-token", Says: "a well-formed token that holds nothing is stale, not invalid",
		run: func(r *rig) {
			d := r.put("a")
			r.take("a", 0)
			r.untouched("using an unknown token", func() {
				r.refused("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", "unknown", r.start), backend.ErrClaimLost)
				r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", "unknown", claim.ReleasePolicy{Now: r.start}))
				disposition, err := r.store.AbandonClaim(r.ctx, "a", "unknown", claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 1})
				r.ok("AbandonClaim", err)
				if disposition != claim.Stale {
					r.Errorf("AbandonClaim answered %v; it must be stale", disposition)
				}
				_, err = r.send(claim.Lease{Token: "unknown"}, next(d, toNow, r.start, r.start))
				r.refused("Commit", err, checkpoint.ErrStaleFence)
			})
		},
	},
}

// invalid requires that an operation refuses an argument, names it, and changes nothing.
func (r *rig) invalid(what string, do func() error) {
	r.Helper()
	r.untouched(what, func() {
		err := do()
		r.refused(what, err, backend.ErrInvalidArgument)
		var arg *backend.ArgumentError
		if errors.As(err, &arg) {
			if arg.Argument == "" || arg.Reason == "" {
				r.Errorf("%s: the error must name the argument and a reason: %q", what, err)
			}
		} else if err != nil {
			r.Errorf("%s answered %T; it must answer *backend.ArgumentError", what, err)
		}
	})
}

// refuseIDs requires that every call refuses every bad id.
func (r *rig) refuseIDs(calls []call) {
	r.Helper()
	r.put("a")
	for _, c := range calls {
		for _, bad := range badIDs {
			r.invalid(c.name+" "+bad.name, func() error { return c.with(r, bad.id) })
		}
	}
}

// runIDCalls are the operations that take a run id.
var runIDCalls = []call{
	{"InsertRun of an id", func(r *rig, id string) error {
		_, err := r.store.InsertRun(r.ctx, tenantless, r.draft(id, nil))
		return err
	}},
	{"FetchRun of an id", func(r *rig, id string) error { _, err := r.store.FetchRun(r.ctx, backend.System(), id); return err }},
	{"InspectRun of an id", func(r *rig, id string) error { _, err := r.store.InspectRun(r.ctx, backend.System(), id); return err }},
	{"RefreshClaim of an id", func(r *rig, id string) error { return r.store.RefreshClaim(r.ctx, id, "token", r.start) }},
	{"ReleaseClaim of an id", func(r *rig, id string) error {
		return r.store.ReleaseClaim(r.ctx, id, "token", claim.ReleasePolicy{Now: r.start})
	}},
	{"AbandonClaim of an id", func(r *rig, id string) error {
		_, err := r.store.AbandonClaim(r.ctx, id, "token", claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 1})
		return err
	}},
	{"RetryPoisonedRun of an id", func(r *rig, id string) error {
		return r.store.RetryPoisonedRun(r.ctx, backend.System(), id, r.start)
	}},
	{"Commit of an id", func(r *rig, id string) error {
		_, err := r.send(claim.Lease{Token: "token"}, next(opening(id, r.ref, r.start, "").Document, toNow, r.start, r.start))
		return err
	}},
	{"MutateRun of an id", func(r *rig, id string) error {
		_, err := r.store.MutateRun(r.ctx, backend.System(), id, r.commitID(), r.never("MutateRun"))
		return err
	}},
	{"FetchEvent of an id", func(r *rig, id string) error {
		_, err := r.store.FetchEvent(r.ctx, backend.System(), id, 1)
		return err
	}},
	{"LatestEvent of an id", func(r *rig, id string) error {
		_, err := r.store.LatestEvent(r.ctx, backend.System(), id)
		return err
	}},
	{"ListEvents of an id", func(r *rig, id string) error {
		_, err := r.store.ListEvents(r.ctx, backend.System(), id, backend.EventQuery{Limit: 1})
		return err
	}},
}

// tokenCalls are the operations that take a token. The run is unknown: a token is
// examined before any lookup.
var tokenCalls = []call{
	{"RefreshClaim under a token", func(r *rig, token string) error {
		return r.store.RefreshClaim(r.ctx, "unknown", claim.Token(token), r.start)
	}},
	{"ReleaseClaim under a token", func(r *rig, token string) error {
		return r.store.ReleaseClaim(r.ctx, "unknown", claim.Token(token), claim.ReleasePolicy{Now: r.start})
	}},
	{"AbandonClaim under a token", func(r *rig, token string) error {
		_, err := r.store.AbandonClaim(r.ctx, "unknown", claim.Token(token), claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 1})
		return err
	}},
	{"Commit under a token", func(r *rig, token string) error {
		_, err := r.send(claim.Lease{Token: claim.Token(token)}, next(opening("unknown", r.ref, r.start, "").Document, toNow, r.start, r.start))
		return err
	}},
}

// checkpointIDCalls are the operations that take a checkpoint id.
var checkpointIDCalls = []call{
	{"InsertRun under a checkpoint id", func(r *rig, id string) error {
		_, err := r.store.InsertRun(r.ctx, tenantless, opening("b", r.ref, r.start, checkpoint.ID(id)))
		return err
	}},
	{"Commit under a checkpoint id", func(r *rig, id string) error {
		p := next(opening("unknown", r.ref, r.start, "").Document, toNow, r.start, r.start)
		_, err := r.store.Commit(r.ctx, backend.System(), backend.Commit{Proposal: p, CheckpointID: checkpoint.ID(id), Token: "token"})
		return err
	}},
	{"MutateRun under a checkpoint id", func(r *rig, id string) error {
		_, err := r.store.MutateRun(r.ctx, backend.System(), "a", checkpoint.ID(id), r.never("MutateRun"))
		return err
	}},
}

// graphIDCalls are the operations that take a graph id.
var graphIDCalls = []call{
	{"SaveGraph of an id", func(r *rig, id string) error {
		ref, raw := published("proof", 0)
		return r.store.SaveGraph(r.ctx, tenantless, graph.Ref{ID: id, Hash: ref.Hash}, raw)
	}},
	{"FetchGraph of an id", func(r *rig, id string) error {
		_, err := r.store.FetchGraph(r.ctx, tenantless, graph.Ref{ID: id, Hash: r.ref.Hash})
		return err
	}},
	{"LatestGraph of an id", func(r *rig, id string) error {
		_, err := r.store.LatestGraph(r.ctx, tenantless, id)
		return err
	}},
	{"GraphVersions of an id", func(r *rig, id string) error {
		_, err := r.store.GraphVersions(r.ctx, tenantless, id, backend.GraphQuery{Limit: 1})
		return err
	}},
}

// scoped are the operations that take a scope or an owner.
func scoped(of func(id string) (backend.Owner, backend.Scope)) []call {
	with := func(name string, do func(r *rig, o backend.Owner, s backend.Scope) error) call {
		return call{name, func(r *rig, id string) error {
			o, s := of(id)
			return do(r, o, s)
		}}
	}
	return []call{
		with("InsertRun for an owner", func(r *rig, o backend.Owner, _ backend.Scope) error {
			_, err := r.store.InsertRun(r.ctx, o, r.draft("b", nil))
			return err
		}),
		with("FetchRun in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.FetchRun(r.ctx, s, "a")
			return err
		}),
		with("InspectRun in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.InspectRun(r.ctx, s, "a")
			return err
		}),
		with("ListRuns in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.ListRuns(r.ctx, s, backend.Query{Limit: 1})
			return err
		}),
		with("RetryPoisonedRun in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			return r.store.RetryPoisonedRun(r.ctx, s, "a", r.start)
		}),
		with("Commit in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			p := next(opening("a", r.ref, r.start, "").Document, toNow, r.start, r.start)
			_, err := r.store.Commit(r.ctx, s, backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: "token"})
			return err
		}),
		with("MutateRun in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.MutateRun(r.ctx, s, "a", r.commitID(), r.never("MutateRun"))
			return err
		}),
		with("FetchEvent in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.FetchEvent(r.ctx, s, "a", 1)
			return err
		}),
		with("LatestEvent in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.LatestEvent(r.ctx, s, "a")
			return err
		}),
		with("ListEvents in a scope", func(r *rig, _ backend.Owner, s backend.Scope) error {
			_, err := r.store.ListEvents(r.ctx, s, "a", backend.EventQuery{Limit: 1})
			return err
		}),
		with("SaveGraph for an owner", func(r *rig, o backend.Owner, _ backend.Scope) error {
			ref, raw := published("proof", 0)
			return r.store.SaveGraph(r.ctx, o, ref, raw)
		}),
		with("FetchGraph for an owner", func(r *rig, o backend.Owner, _ backend.Scope) error {
			_, err := r.store.FetchGraph(r.ctx, o, r.ref)
			return err
		}),
		with("LatestGraph for an owner", func(r *rig, o backend.Owner, _ backend.Scope) error {
			_, err := r.store.LatestGraph(r.ctx, o, r.ref.ID)
			return err
		}),
		with("GraphVersions for an owner", func(r *rig, o backend.Owner, _ backend.Scope) error {
			_, err := r.store.GraphVersions(r.ctx, o, r.ref.ID, backend.GraphQuery{Limit: 1})
			return err
		}),
	}
}

// never is a mutation's function that must not be called.
func (r *rig) never(what string) backend.MutateFunc {
	return func(*run.Document) (backend.Mutation, error) {
		r.Errorf("%s called its function", what)
		return backend.Mutation{}, errors.New("the function was called")
	}
}
