package belay_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/seal"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	errArgument = backend.ErrInvalidArgument
	zeroTime    time.Time
	nobody      = backend.Of(backend.Tenantless())
)

func findDiagnostics(err error) bool {
	var found graph.Diagnostics
	return errors.As(err, &found)
}

// scopes are scopes that see nothing, and never everything.
func scopes(call func(w *world, s backend.Scope) error) []bad {
	return []bad{
		{"the zero scope", func(w *world) error { return call(w, backend.Scope{}) }, errArgument, "scope"},
		{"the scope of the zero owner", func(w *world) error { return call(w, backend.Of(backend.Owner{})) }, errArgument, "owner"},
		{"the scope of an empty tenant", func(w *world) error { return call(w, backend.Of(backend.Tenant(""))) }, errArgument, "tenant"},
	}
}

func owners(call func(w *world, o backend.Owner) error) []bad {
	return []bad{
		{"the zero owner", func(w *world) error { return call(w, backend.Owner{}) }, errArgument, "owner"},
		{"an empty tenant", func(w *world) error { return call(w, backend.Tenant("")) }, errArgument, "tenant"},
	}
}

func runs(call func(w *world, s backend.Scope, id string) error) []bad {
	return append(scopes(func(w *world, s backend.Scope) error { return call(w, s, "r") }),
		ids("run id", errArgument, func(w *world, id string) error { return call(w, backend.System(), id) })...)
}

func tokens(call func(w *world, id string, token claim.Token) error) []bad {
	return append(ids("run id", errArgument, func(w *world, id string) error { return call(w, id, "t") }),
		ids("token", errArgument, func(w *world, id string) error { return call(w, "r", claim.Token(id)) })...)
}

func graphs(call func(w *world, o backend.Owner, ref graph.Ref) error) []bad {
	return append(owners(func(w *world, o backend.Owner) error { return call(w, o, graph.Ref{ID: "a", Hash: "b"}) }),
		append(ids("graph id", errArgument, func(w *world, id string) error {
			return call(w, backend.Tenantless(), graph.Ref{ID: id, Hash: "b"})
		}), ids("graph hash", errArgument, func(w *world, id string) error {
			return call(w, backend.Tenantless(), graph.Ref{ID: "a", Hash: id})
		})...)...)
}

func saves(call func(w *world, o backend.Owner, ref graph.Ref, raw value.Value) error) []bad {
	return append(graphs(func(w *world, o backend.Owner, ref graph.Ref) error { return call(w, o, ref, value.Value("{}")) }),
		bad{"no bytes", func(w *world) error { return call(w, backend.Tenantless(), graph.Ref{ID: "a", Hash: "b"}, nil) }, errArgument, "graph"},
		bad{"another digest", func(w *world) error {
			return call(w, backend.Tenantless(), graph.Ref{ID: "a", Hash: "b"}, value.Value("{}"))
		}, backend.ErrInvalidGraphHash, "SHA-256"})
}

func versions(call func(w *world, o backend.Owner, id string, q backend.GraphQuery) error) []bad {
	cases := owners(func(w *world, o backend.Owner) error { return call(w, o, "a", backend.GraphQuery{Limit: 1}) })
	cases = append(cases, ids("graph id", errArgument, func(w *world, id string) error {
		return call(w, backend.Tenantless(), id, backend.GraphQuery{Limit: 1})
	})...)
	return append(cases, limits(func(w *world, limit int) error {
		return call(w, backend.Tenantless(), "a", backend.GraphQuery{Limit: limit})
	})...)
}

func limits(call func(w *world, limit int) error) []bad {
	return []bad{
		{"a limit of 0", func(w *world) error { return call(w, 0) }, errArgument, "limit"},
		{"a negative limit", func(w *world) error { return call(w, -1) }, errArgument, "limit"},
		{"a limit of 1001", func(w *world) error { return call(w, backend.MaxLimit+1) }, errArgument, "limit"},
	}
}

func queries(call func(w *world, s backend.Scope, q backend.Query) error) []bad {
	with := func(name, says string, q backend.Query) bad {
		q.Limit = 1
		return bad{name, func(w *world) error { return call(w, nobody, q) }, errArgument, says}
	}
	cases := scopes(func(w *world, s backend.Scope) error { return call(w, s, backend.Query{Limit: 1}) })
	cases = append(cases, limits(func(w *world, limit int) error { return call(w, nobody, backend.Query{Limit: limit}) })...)
	return append(cases,
		with("an unknown status", "statuses", backend.Query{Statuses: []run.Status{"asleep"}}),
		with("a status that is never stored", "statuses", backend.Query{Statuses: []run.Status{run.Created}}),
		with("half a cursor", "cursor", backend.Query{Before: backend.Cursor{Run: "r"}}),
		with("an oversized graph id", "graph id", backend.Query{GraphID: strings.Repeat("x", 256)}),
	)
}

func eventQueries(call func(w *world, s backend.Scope, id string, q backend.EventQuery) error) []bad {
	cases := runs(func(w *world, s backend.Scope, id string) error { return call(w, s, id, backend.EventQuery{Limit: 1}) })
	cases = append(cases, limits(func(w *world, limit int) error {
		return call(w, nobody, "r", backend.EventQuery{Limit: limit})
	})...)
	return append(cases, bad{"a negative position", func(w *world) error {
		return call(w, nobody, "r", backend.EventQuery{After: -1, Limit: 1})
	}, errArgument, "after"})
}

func prunes(call func(w *world, p backend.PrunePolicy) error) []bad {
	cases := limits(func(w *world, limit int) error { return call(w, backend.PrunePolicy{Before: epoch, Limit: limit}) })
	return append(cases,
		bad{"no instant", func(w *world) error { return call(w, backend.PrunePolicy{Limit: 1}) }, errArgument, "before"},
		bad{"a status of runs that go on", func(w *world) error {
			return call(w, backend.PrunePolicy{Before: epoch, Limit: 1, Statuses: []run.Status{run.Waiting}})
		}, errArgument, "statuses"})
}

// large is an input of 17 MiB.
func large(in []run.Channel) []run.Channel {
	out := append([]run.Channel(nil), in...)
	out[0].Value = value.Value(`"` + strings.Repeat("x", 17<<20) + `"`)
	return out
}

// commits are commits that no state of a run could accept.
func commits(call func(w *world, s backend.Scope, c backend.Commit) error) []bad {
	with := func(name string, is error, says string, spoil func(w *world, c *backend.Commit)) bad {
		return bad{name, func(w *world) error {
			c := backend.Commit{Proposal: w.settled(run.Completed("work", nil)), CheckpointID: "c", Token: "t"}
			d := *c.Document
			c.Document = &d
			spoil(w, &c)
			return call(w, nobody, c)
		}, is, says}
	}
	cases := scopes(func(w *world, s backend.Scope) error {
		return call(w, s, backend.Commit{Proposal: w.settled(run.Completed("work", nil)), CheckpointID: "c", Token: "t"})
	})
	return append(cases,
		with("no token", errArgument, "token", func(_ *world, c *backend.Commit) { c.Token = "" }),
		with("no checkpoint id", errArgument, "checkpoint", func(_ *world, c *backend.Commit) { c.CheckpointID = "" }),
		with("no run id", errArgument, "run id", func(_ *world, c *backend.Commit) { c.Document.ID = "" }),
		with("no document", backend.ErrInvalidCommit, "document", func(_ *world, c *backend.Commit) { c.Document = nil }),
		with("a sequence that skips one", backend.ErrInvalidCommit, "sequence", func(_ *world, c *backend.Commit) { c.Expected-- }),
		with("an unknown checkpoint type", backend.ErrInvalidCommit, "party", func(_ *world, c *backend.Commit) { c.Type = "party" }),
		with("no schedule", backend.ErrInvalidCommit, "schedule", func(_ *world, c *backend.Commit) { c.Schedule = checkpoint.Schedule{} }),
		with("a schedule that does not fit", backend.ErrInvalidCommit, "schedule", func(_ *world, c *backend.Commit) {
			c.Schedule = checkpoint.Schedule{Kind: checkpoint.Retain}
		}),
		with("a document that is not storable", backend.ErrInvalidCommit, "", func(_ *world, c *backend.Commit) { c.Document.Step = -1 }),
		with("another run's event", backend.ErrInvalidCommit, "", func(_ *world, c *backend.Commit) {
			c.Events = append([]run.Event(nil), c.Events...)
			c.Events[0].Run = "other"
		}),
		with("two events under one sequence", backend.ErrEventConflict, "", func(_ *world, c *backend.Commit) {
			twin := c.Events[0]
			twin.Step = 99
			c.Events = append([]run.Event{twin}, c.Events...)
		}),
		with("a document of 17 MiB", value.ErrTooLarge, "limit", func(_ *world, c *backend.Commit) {
			c.Document.Input = large(c.Document.Input)
		}),
	)
}

// inserts are first commits that cannot be stored.
func inserts(call func(w *world, o backend.Owner, in backend.Initialization) error) []bad {
	with := func(name string, is error, says string, spoil func(w *world, in *backend.Initialization)) bad {
		return bad{name, func(w *world) error {
			in := backend.Initialization{Proposal: w.initial(), CheckpointID: "c"}
			d := *in.Document
			in.Document = &d
			spoil(w, &in)
			return call(w, backend.Tenantless(), in)
		}, is, says}
	}
	cases := owners(func(w *world, o backend.Owner) error {
		return call(w, o, backend.Initialization{Proposal: w.initial(), CheckpointID: "c"})
	})
	return append(cases,
		with("no run id", errArgument, "run id", func(_ *world, in *backend.Initialization) { in.Document.ID = "" }),
		with("no checkpoint id", errArgument, "checkpoint", func(_ *world, in *backend.Initialization) { in.CheckpointID = "" }),
		with("an oversized start key", errArgument, "start key", func(_ *world, in *backend.Initialization) { in.Key = strings.Repeat("x", 256) }),
		with("a negative window", errArgument, "window", func(_ *world, in *backend.Initialization) { in.Key, in.Window = "k", -1 }),
		with("a negative TTL", errArgument, "ttl", func(_ *world, in *backend.Initialization) {
			in.Schedule = checkpoint.Schedule{}
			in.Claim = &backend.StartClaim{TTL: -1}
		}),
		with("no document", backend.ErrInvalidCommit, "document", func(_ *world, in *backend.Initialization) { in.Document = nil }),
		with("a finished run", backend.ErrInvalidCommit, "", func(w *world, in *backend.Initialization) {
			in.Proposal = w.settled(run.Completed("work", nil))
		}),
		with("no start instant", backend.ErrInvalidCommit, "start", func(_ *world, in *backend.Initialization) { in.Document.StartedAt = zeroTime }),
		with("another checkpoint type", backend.ErrInvalidCommit, "", func(_ *world, in *backend.Initialization) { in.Type = checkpoint.StepCommitted }),
		with("neither wake nor claim", backend.ErrInvalidCommit, "", func(_ *world, in *backend.Initialization) { in.Schedule = checkpoint.Schedule{} }),
		with("wake and claim", backend.ErrInvalidCommit, "", func(_ *world, in *backend.Initialization) {
			in.Claim = &backend.StartClaim{TTL: time.Minute}
		}),
		with("a document of 17 MiB", value.ErrTooLarge, "limit", func(_ *world, in *backend.Initialization) {
			in.Document.Input = large(in.Document.Input)
		}),
	)
}

// mutations are decisions that cannot be stored, made on the run "r" asking its question.
func mutations(call func(w *world, p run.Proposal) error) []bad {
	with := func(name, says string, spoil func(w *world, p *run.Proposal)) bad {
		return bad{name, func(w *world) error {
			p, _, err := run.Cancel(w.asking(), "", epoch)
			if err != nil {
				w.t.Fatal(err)
			}
			d := *p.Document
			p.Document = &d
			spoil(w, &p)
			return call(w, p)
		}, backend.ErrInvalidMutation, says}
	}
	return []bad{
		with("no document", "document", func(_ *world, p *run.Proposal) { p.Document = nil }),
		with("a claim to retain", "", func(_ *world, p *run.Proposal) { p.Schedule = checkpoint.Schedule{Kind: checkpoint.Retain} }),
		with("another sequence", "sequence", func(_ *world, p *run.Proposal) { p.Expected = 7 }),
		with("another run", "", func(_ *world, p *run.Proposal) { p.Document.ID = "other" }),
		with("another graph", "graph", func(_ *world, p *run.Proposal) { p.Document.Graph.ID = "other" }),
		with("a status that is never stored", "", func(_ *world, p *run.Proposal) { p.Document.Status = run.Created }),
		with("a document that is not storable", "", func(_ *world, p *run.Proposal) { p.Document.Step = -1 }),
	}
}

func badBackend() map[string][]bad {
	all := backend.Features{ClaimFilter: true, OwnerCap: true, StartClaimed: true}
	nothing := func(*run.Document) (backend.Mutation, error) { return backend.Mutation{}, nil }
	return map[string][]bad{
		"backend.Cursor.UnmarshalText": {
			{"no instant", func(*world) error { return new(backend.Cursor).UnmarshalText([]byte("r1")) }, errArgument, "instant"},
			{"no run's id", func(*world) error { return new(backend.Cursor).UnmarshalText([]byte("2026-01-31T12:00:00Z,\x00")) }, errArgument, "cursor"},
		},
		"backend.Of":             scopes(func(_ *world, s backend.Scope) error { return s.Validate() })[1:],
		"backend.Scope.Validate": scopes(func(_ *world, s backend.Scope) error { return s.Validate() }),
		"backend.Tenant":         ids("tenant", errArgument, func(_ *world, id string) error { return backend.Tenant(id).Validate() }),
		"backend.CheckRun":       runs(func(_ *world, s backend.Scope, id string) error { return backend.CheckRun(s, id) }),
		"backend.CheckClaim":     tokens(func(_ *world, id string, token claim.Token) error { return backend.CheckClaim(id, token) }),
		"backend.CheckRelease": append(tokens(func(_ *world, id string, token claim.Token) error {
			_, err := backend.CheckRelease(id, token, claim.ReleasePolicy{})
			return err
		}), badReleases(func(_ *world, p claim.ReleasePolicy) error { _, err := backend.CheckRelease("r", "t", p); return err })...),
		"backend.CheckAbandon": append(tokens(func(_ *world, id string, token claim.Token) error {
			_, err := backend.CheckAbandon(id, token, claim.AbandonPolicy{MaxAbandons: 1})
			return err
		}), badAbandons(func(_ *world, p claim.AbandonPolicy) error { _, err := backend.CheckAbandon("r", "t", p); return err })...),
		"backend.CheckPolicy": append(badPolicies(func(_ *world, p claim.Policy) error { _, err := backend.CheckPolicy(p, all); return err }),
			bad{"a filter where there is none", func(*world) error {
				_, err := backend.CheckPolicy(claim.Policy{Limit: 1, MaxAttempts: 1, Filter: claim.Filter{Runs: []string{"r"}}}, backend.Features{})
				return err
			}, backend.ErrUnsupported, "X4"},
			bad{"a cap where there is none", func(*world) error {
				_, err := backend.CheckPolicy(claim.Policy{Limit: 1, MaxAttempts: 1, OwnerCap: 1}, backend.Features{})
				return err
			}, backend.ErrUnsupported, "X10"}),
		"backend.CheckInitialization": append(inserts(func(_ *world, o backend.Owner, in backend.Initialization) error {
			_, err := backend.CheckInitialization(o, in, all, value.Limits{}.WithDefaults())
			return err
		}), bad{"a claim where there is none", func(w *world) error {
			in := backend.Initialization{Proposal: w.initial(), CheckpointID: "c", Claim: &backend.StartClaim{}}
			in.Schedule = checkpoint.Schedule{}
			_, err := backend.CheckInitialization(backend.Tenantless(), in, backend.Features{}, value.Limits{}.WithDefaults())
			return err
		}, backend.ErrUnsupported, "X1"}),
		"backend.CheckCommit": commits(func(_ *world, s backend.Scope, c backend.Commit) error {
			_, err := backend.CheckCommit(s, c, value.Limits{}.WithDefaults())
			return err
		}),
		"backend.CheckIdentity": {
			{"another graph version", func(w *world) error {
				d := *w.asking()
				d.Graph.Hash = "other"
				return backend.CheckIdentity(backend.IdentityOf(w.asking()), &d)
			}, backend.ErrInvalidCommit, "graph"},
			{"another start", func(w *world) error {
				d := *w.asking()
				d.StartedAt = epoch.Add(time.Hour)
				return backend.CheckIdentity(backend.IdentityOf(w.asking()), &d)
			}, backend.ErrInvalidCommit, "start"},
		},
		"backend.CheckMutate": append(runs(func(_ *world, s backend.Scope, id string) error {
			return backend.CheckMutate(s, id, "c", nothing)
		}),
			bad{"no commit id", func(*world) error { return backend.CheckMutate(nobody, "r", "", nothing) }, errArgument, "checkpoint"},
			bad{"a nil function", func(*world) error { return backend.CheckMutate(nobody, "r", "c", nil) }, errArgument, "function"}),
		"backend.CheckMutation": mutations(func(w *world, p run.Proposal) error {
			_, err := backend.CheckMutation(w.asking(), p, value.Limits{}.WithDefaults())
			return err
		}),
		"backend.CheckQuery": queries(func(_ *world, s backend.Scope, q backend.Query) error { _, err := backend.CheckQuery(s, q); return err }),
		"backend.CheckEvent": append(runs(func(_ *world, s backend.Scope, id string) error { return backend.CheckEvent(s, id, 1) }),
			bad{"sequence 0", func(*world) error { return backend.CheckEvent(nobody, "r", 0) }, errArgument, "sequence"}),
		"backend.CheckEventQuery": eventQueries(func(_ *world, s backend.Scope, id string, q backend.EventQuery) error {
			return backend.CheckEventQuery(s, id, q)
		}),
		"backend.CheckSaveGraph": saves(func(_ *world, o backend.Owner, ref graph.Ref, raw value.Value) error {
			return backend.CheckSaveGraph(o, ref, raw)
		}),
		"backend.CheckGraph":   graphs(func(_ *world, o backend.Owner, ref graph.Ref) error { return backend.CheckGraph(o, ref) }),
		"backend.CheckGraphID": ids("graph id", errArgument, func(_ *world, id string) error { return backend.CheckGraphID(backend.Tenantless(), id) }),
		"backend.CheckGraphQuery": versions(func(_ *world, o backend.Owner, id string, q backend.GraphQuery) error {
			_, err := backend.CheckGraphQuery(o, id, q)
			return err
		}),
		"backend.CheckPrune": prunes(func(_ *world, p backend.PrunePolicy) error { _, err := backend.CheckPrune(p); return err }),
		"backend.VerifyGraph": {{"other bytes", func(*world) error {
			return backend.VerifyGraph(graph.Ref{ID: "a", Hash: "b"}, value.Value("{}"))
		}, backend.ErrCorruptGraph, "a"}},
		"backend.OpenDocument": stored(func(raw []byte) error {
			_, err := backend.OpenDocument(nil, backend.Tenantless(), "r", 1, raw)
			return err
		}),
		"backend.OpenEvents": stored(func(raw []byte) (err error) {
			for _, err = range backend.OpenEvents(nil, backend.Tenantless(), "r", 1, raw, 0) {
			}
			return err
		}),
		"backend.EventAt": stored(func(raw []byte) error {
			_, err := backend.EventAt(nil, backend.Tenantless(), "r", 1, raw, 1)
			return err
		}),
		"backend.FirstEvent": {{"a list with no beginning", func(*world) error { _, err := backend.FirstEvent("r", 5, []byte(`[{`)); return err }, backend.ErrCorrupt, "event 5"}},
		"backend.NewEvents": stored(func(raw []byte) error {
			e := run.Event{Run: "r", Seq: 1, Type: run.EventRunInitialized, At: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
			_, err := backend.NewEvents(nil, backend.Tenantless(), backend.EventRow{Seq: 1, Body: raw}, []run.Event{e})
			return err
		})[1:],
		"backend.PackEvents": {{"an event that is not storable", func(*world) error {
			_, err := backend.PackEvents(nil, backend.Tenantless(), "c", []run.Event{{}}, 0)
			return err
		}, run.ErrInvalidEvent, ""}},
		"seal.AESGCM": {
			{"a short key", func(*world) error { _, err := seal.AESGCM(map[string][]byte{"k": {1, 2}}, "k"); return err }, errArgument, "32 random"},
			{"no key of that id", func(*world) error { _, err := seal.AESGCM(nil, "k"); return err }, errArgument, "current key"},
			{"an empty id", func(*world) error { _, err := seal.AESGCM(map[string][]byte{"": make([]byte, 32)}, ""); return err }, errArgument, "key id"},
		},
		"backend.SameEvent": {{"an event that is not storable", func(w *world) error {
			_, err := backend.SameEvent(w.initial().Events[0], run.Event{})
			return err
		}, run.ErrInvalidEvent, ""}},
	}
}

// stored is what a row may hold that does not open.
func stored(call func(raw []byte) error) []bad {
	return []bad{
		{"no payload", func(*world) error { return call([]byte("{")) }, backend.ErrCorrupt, "r"},
		{"a payload that is cut off", func(*world) error { return call([]byte("\x00belay\x01\x07key")) }, backend.ErrCorrupt, "cut off"},
		{"a payload that is sealed", func(*world) error { return call([]byte("\x00belay\x01\x01ksealed")) }, backend.ErrSealed, `"k"`},
		{"a payload that a newer version has sealed", func(*world) error { return call([]byte("\x00belay\x02sealed")) }, backend.ErrSealed, "newer"},
	}
}

// badMemory gives the store itself what the checks refuse, so that none is left out.
func badMemory() map[string][]bad {
	ctx := context.Background()
	open := func(w *world) *memory.Store {
		s := memory.New(memory.Options{})
		g := w.compiled()
		if err := s.SaveGraph(ctx, backend.Tenantless(), g.Ref(), g.Bytes()); err != nil {
			w.t.Fatal(err)
		}
		return s
	}
	// closed is a case of every operation: the store is closed.
	closed := func(call func(w *world, s *memory.Store) error) bad {
		return bad{"a closed store", func(w *world) error {
			s := open(w)
			if err := s.Close(); err != nil {
				w.t.Fatal(err)
			}
			return call(w, s)
		}, backend.ErrClosed, "closed"}
	}
	nothing := func(*run.Document) (backend.Mutation, error) { return backend.Mutation{}, nil }
	first := func(errs []error) error {
		if len(errs) == 0 {
			return nil
		}
		return errs[0]
	}
	return map[string][]bad{
		"memory.Store.InsertRun": append(inserts(func(w *world, o backend.Owner, in backend.Initialization) error {
			_, err := open(w).InsertRun(ctx, o, in)
			return err
		}),
			bad{"a graph that is not published", func(w *world) error {
				_, err := memory.New(memory.Options{}).InsertRun(ctx, backend.Tenantless(), backend.Initialization{Proposal: w.initial(), CheckpointID: "c"})
				return err
			}, backend.ErrNotFound, ""},
			closed(func(w *world, s *memory.Store) error {
				_, err := s.InsertRun(ctx, backend.Tenantless(), backend.Initialization{Proposal: w.initial(), CheckpointID: "c"})
				return err
			})),
		"memory.Store.InsertRuns": inserts(func(w *world, o backend.Owner, in backend.Initialization) error {
			return open(w).InsertRuns(ctx, o, []backend.Initialization{in})[0].Err
		}),
		"memory.Store.FetchRun":   runs(func(w *world, s backend.Scope, id string) error { _, err := open(w).FetchRun(ctx, s, id); return err }),
		"memory.Store.InspectRun": runs(func(w *world, s backend.Scope, id string) error { _, err := open(w).InspectRun(ctx, s, id); return err }),
		"memory.Store.ListRuns": queries(func(w *world, s backend.Scope, q backend.Query) error {
			_, err := open(w).ListRuns(ctx, s, q)
			return err
		}),
		"memory.Store.ClaimDue": append(badPolicies(func(w *world, p claim.Policy) error { _, err := open(w).ClaimDue(ctx, p); return err }),
			closed(func(_ *world, s *memory.Store) error {
				_, err := s.ClaimDue(ctx, claim.Policy{Limit: 1, MaxAttempts: 1})
				return err
			})),
		"memory.Store.ClaimDueDocuments": badPolicies(func(w *world, p claim.Policy) error { _, err := open(w).ClaimDueDocuments(ctx, p); return err }),
		"memory.Store.RefreshClaim": append(tokens(func(w *world, id string, token claim.Token) error {
			return open(w).RefreshClaim(ctx, id, token, epoch)
		}), bad{"an unknown token", func(w *world) error { return open(w).RefreshClaim(ctx, "r", "t", epoch) }, backend.ErrClaimLost, ""}),
		"memory.Store.RefreshClaims": tokens(func(w *world, id string, token claim.Token) error {
			return first(open(w).RefreshClaims(ctx, []backend.Held{{Run: id, Token: token}}, epoch))
		}),
		"memory.Store.ReleaseClaim": append(tokens(func(w *world, id string, token claim.Token) error {
			return open(w).ReleaseClaim(ctx, id, token, claim.ReleasePolicy{})
		}), badReleases(func(w *world, p claim.ReleasePolicy) error { return open(w).ReleaseClaim(ctx, "r", "t", p) })...),
		"memory.Store.AbandonClaim": append(tokens(func(w *world, id string, token claim.Token) error {
			_, err := open(w).AbandonClaim(ctx, id, token, claim.AbandonPolicy{MaxAbandons: 1})
			return err
		}), badAbandons(func(w *world, p claim.AbandonPolicy) error {
			_, err := open(w).AbandonClaim(ctx, "r", "t", p)
			return err
		})...),
		"memory.Store.RetryPoisonedRun": append(runs(func(w *world, s backend.Scope, id string) error {
			return open(w).RetryPoisonedRun(ctx, s, id, epoch)
		}), bad{"an unknown run", func(w *world) error { return open(w).RetryPoisonedRun(ctx, nobody, "r", epoch) }, backend.ErrNotFound, ""}),
		"memory.Store.Commit": append(commits(func(w *world, s backend.Scope, c backend.Commit) error {
			_, err := open(w).Commit(ctx, s, c)
			return err
		}),
			bad{"an unknown run", func(w *world) error {
				_, err := open(w).Commit(ctx, nobody, backend.Commit{Proposal: w.settled(run.Completed("work", nil)), CheckpointID: "c", Token: "t"})
				return err
			}, backend.ErrNotFound, ""}),
		"memory.Store.Commits": commits(func(w *world, s backend.Scope, c backend.Commit) error {
			return open(w).Commits(ctx, s, []backend.Commit{c})[0].Err
		}),
		"memory.Store.MutateRun": append(append(runs(func(w *world, s backend.Scope, id string) error {
			_, err := open(w).MutateRun(ctx, s, id, "c", nothing)
			return err
		}),
			bad{"a nil function", func(w *world) error { _, err := open(w).MutateRun(ctx, nobody, "r", "c", nil); return err }, errArgument, "function"},
			bad{"an unknown run", func(w *world) error { _, err := open(w).MutateRun(ctx, nobody, "r", "c", nothing); return err }, backend.ErrNotFound, ""}),
			mutations(func(w *world, p run.Proposal) error {
				s := open(w)
				must[backend.Inserted](w)(s.InsertRun(ctx, backend.Tenantless(), backend.Initialization{Proposal: w.initial(), CheckpointID: "c1"}))
				batch := must[claim.Batch](w)(s.ClaimDue(ctx, claim.Policy{Now: epoch, TTL: time.Minute, Limit: 1, MaxAttempts: 1}))
				must[backend.Committed](w)(s.Commit(ctx, nobody, backend.Commit{
					Proposal: w.settled(run.Ask("work", run.Question{ID: "q"})), CheckpointID: "c2", Token: batch.Leases[0].Token,
				}))
				_, err := s.MutateRun(ctx, nobody, "r", "c3", func(*run.Document) (backend.Mutation, error) { return backend.Mutation{Proposal: &p}, nil })
				return err
			})...),
		"memory.Store.FetchEvent": append(runs(func(w *world, s backend.Scope, id string) error {
			_, err := open(w).FetchEvent(ctx, s, id, 1)
			return err
		}), bad{"sequence 0", func(w *world) error { _, err := open(w).FetchEvent(ctx, nobody, "r", 0); return err }, errArgument, "sequence"}),
		"memory.Store.LatestEvent": runs(func(w *world, s backend.Scope, id string) error {
			_, err := open(w).LatestEvent(ctx, s, id)
			return err
		}),
		"memory.Store.ListEvents": eventQueries(func(w *world, s backend.Scope, id string, q backend.EventQuery) error {
			_, err := open(w).ListEvents(ctx, s, id, q)
			return err
		}),
		"memory.Store.SaveGraph": saves(func(w *world, o backend.Owner, ref graph.Ref, raw value.Value) error {
			return open(w).SaveGraph(ctx, o, ref, raw)
		}),
		"memory.Store.FetchGraph": graphs(func(w *world, o backend.Owner, ref graph.Ref) error {
			_, err := open(w).FetchGraph(ctx, o, ref)
			return err
		}),
		"memory.Store.LatestGraph": append(owners(func(w *world, o backend.Owner) error { _, err := open(w).LatestGraph(ctx, o, "a"); return err }),
			ids("graph id", errArgument, func(w *world, id string) error {
				_, err := open(w).LatestGraph(ctx, backend.Tenantless(), id)
				return err
			})...),
		"memory.Store.GraphVersions": versions(func(w *world, o backend.Owner, id string, q backend.GraphQuery) error {
			_, err := open(w).GraphVersions(ctx, o, id, q)
			return err
		}),
		"memory.Store.Prune":     prunes(func(w *world, p backend.PrunePolicy) error { _, err := open(w).Prune(ctx, p); return err }),
		"memory.Store.Now":       {closed(func(_ *world, s *memory.Store) error { _, err := s.Now(ctx); return err })},
		"memory.Store.Subscribe": {closed(func(_ *world, s *memory.Store) error { _, err := s.Subscribe(ctx); return err })},
	}
}
