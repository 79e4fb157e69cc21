package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// R4: fetch and inspect.
var readCases = []Case{
	{
		ID: "R4.committed", Says: "fetch and inspect show the last committed document, whoever holds the run",
		run: func(r *rig) {
			d := r.put("a")
			r.document(d)
			l := r.take("a", 0)
			r.document(d)
			d = r.commit(l, d, toRetain, time.Second)
			r.document(d)
			r.same("the inspected document", r.inspect("a").Document, d)
			d = r.commit(l, d, toDone, 2*time.Second)
			r.document(d)
			info := r.inspect("a")
			r.same("the inspection", info, backend.Info{
				Document: d, Owner: tenantless, Type: checkpoint.RunCompleted, CheckpointID: info.CheckpointID,
			})
		},
	},
	{
		ID: "R4.values", Says: "values survive digit by digit: large integers, decimals, exponents, NUL, empty and null",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) {
				for i, v := range []string{
					`9007199254740993`, `0.10`, `1e400`, `-0`, `"\u0000"`, `""`, `null`, `{}`, `[]`, `[1,1.0,"1"]`,
					`{"a":{"b":[null,false]},"z":"\u2028<>&\u00e9"}`,
				} {
					in.Document.State = append(in.Document.State, run.Channel{Name: fmt.Sprintf("v%02d", i), Value: r.canonical(v), Version: 1})
				}
				in.Document.Metadata = map[string]string{"e\u0301": "decomposed", "k": ""}
			})
			r.insert(tenantless, in)
			r.document(in.Document)
			d := r.commit(r.take("a", 0), in.Document, toNow, 0)
			r.document(d)
		},
	},
	{
		ID: "R4.no-token", Says: "an inspection never shows the token",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			if text := fmt.Sprintf("%#v", r.inspect("a")); strings.Contains(text, string(l.Token)) {
				r.Errorf("the inspection of a claimed run holds its token")
			}
		},
	},
	{
		ID: "R4.corrupt", Says: "a document that does not decode is a typed error of fetch and inspect, never absence", needs: []need{writeDocument},
		run: func(r *rig) {
			r.put("a")
			r.put("b")
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "a", []byte(`{"broken`)))
			_, err := r.store.FetchRun(r.ctx, backend.System(), "a")
			r.corrupt("FetchRun of a corrupt document", err, "a")
			_, err = r.store.InspectRun(r.ctx, backend.System(), "a")
			r.corrupt("InspectRun of a corrupt document", err, "a")
			_, err = r.store.FetchRun(r.ctx, backend.Of(acme), "a")
			r.refused("FetchRun of another scope's corrupt document", err, backend.ErrNotFound)
			r.expect("b", columns{Status: run.Running, Wake: r.start})
		},
	},
	{
		ID: "R4.reopen", Says: "what was committed is there when the store is opened again", needs: []need{reopen},
		run: func(r *rig) {
			r.bring("a", toWaiting)
			r.poison("c", time.Second)
			r.put("b")
			l := r.take("b", 2*time.Second)
			before := r.look()
			r.store = r.hooks.Reopen(r.T)
			r.same("the reopened store", r.look(), before)
			r.commit(l, before.Infos["b"].Document, toDone, 3*time.Second)
		},
	},
}

// R5: list.
var listCases = []Case{
	{
		ID: "R5.order", Says: "a list is newest first by start instant, then by id descending, bytewise",
		run: func(r *rig) {
			for _, id := range []string{"b", "a", "B", "\u00e9", "z"} {
				r.startAt(id, 0)
			}
			r.startAt("newer", time.Second)
			r.startAt("older", -time.Second)
			r.lists(backend.System(), backend.Query{}, "newer", "\u00e9", "z", "b", "a", "B", "older")
		},
	},
	{
		ID: "R5.order-is-fixed", Says: "commits and claims do not move a run in the list",
		run: func(r *rig) {
			old := r.startAt("old", 0)
			r.startAt("new", time.Second)
			r.commit(r.take("old", 0), old, toDone, time.Hour)
			r.lists(backend.System(), backend.Query{}, "new", "old")
		},
	},
	{
		ID: "R5.pages", Says: "the cursor is exclusive, pages join without gap or repetition at every size, and HasMore is exact",
		run: func(r *rig) {
			var want []string
			for i := range 7 {
				id := fmt.Sprintf("run-%d", i)
				// Pairs share a start instant, so that pages end between them.
				r.startAt(id, time.Duration(i/2)*time.Second)
				want = append(want, id)
			}
			slices.Reverse(want)
			for limit := 1; limit <= 8; limit++ {
				var got []string
				q := backend.Query{Limit: limit}
				for {
					page, err := r.store.ListRuns(r.ctx, backend.System(), q)
					r.ok("ListRuns", err)
					for _, s := range page.Runs {
						got = append(got, s.Run)
					}
					if more := len(got) < len(want); page.HasMore != more || len(page.Runs) > limit {
						r.Fatalf("limit %d: after %v the page of %d has HasMore %v", limit, got, len(page.Runs), page.HasMore)
					}
					if n := len(page.Runs); n > 0 {
						last := page.Runs[n-1]
						r.same("the next cursor", page.Next, backend.Cursor{StartedAt: last.StartedAt, Run: last.Run})
					}
					if !page.HasMore || len(got) > 2*len(want) {
						break
					}
					q.Before = page.Next
				}
				if !slices.Equal(got, want) {
					r.Errorf("limit %d: the pages hold %v; they must hold %v", limit, got, want)
				}
			}
		},
	},
	{
		ID: "R5.cursor-is-a-position", Says: "a cursor need not be the position of a visible run",
		run: func(r *rig) {
			r.startAt("a", 0)
			r.startAt("c", 0)
			r.startAt("z", time.Second)
			r.lists(backend.System(), backend.Query{Before: backend.Cursor{StartedAt: r.start, Run: "b"}}, "a")
			r.lists(backend.System(), backend.Query{Before: backend.Cursor{StartedAt: r.at(tick), Run: "a"}}, "c", "a")
			r.lists(backend.System(), backend.Query{Before: backend.Cursor{StartedAt: r.at(time.Hour), Run: "a"}}, "z", "c", "a")
		},
	},
	{
		ID: "R5.empty-page", Says: "an empty page has nothing more and echoes the cursor it was given",
		run: func(r *rig) {
			page, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 1})
			r.ok("ListRuns", err)
			r.same("the page of an empty store", page, backend.Page{})
			r.startAt("a", 0)
			for _, cursor := range []backend.Cursor{{StartedAt: r.start, Run: "a"}, {StartedAt: r.at(-time.Hour), Run: "x"}} {
				page, err = r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 1, Before: cursor})
				r.ok("ListRuns", err)
				r.same("the page behind the last run", page, backend.Page{Next: cursor})
			}
			page, err = r.store.ListRuns(r.ctx, backend.Of(acme), backend.Query{Limit: 1})
			r.ok("ListRuns", err)
			r.same("the page of a scope without runs", page, backend.Page{})
		},
	},
	{
		ID: "R5.filters", Says: "graph id, graph hash and statuses filter, alone and together",
		run: func(r *rig) {
			another := r.publish(tenantless, "another", 0)
			second := r.publish(tenantless, r.ref.ID, 1)
			for i, c := range []struct {
				id  string
				ref graph.Ref
				end end
			}{
				{"p1-done", r.ref, toDone},
				{"p1-failed", r.ref, toFailed},
				{"p2-done", second, toDone},
				{"p2-waiting", second, toWaiting},
				{"x-cancelled", another, toCancelled},
				{"x-running", another, toRetain},
			} {
				in := opening(c.id, c.ref, r.at(time.Duration(i)*time.Second), r.commitID())
				r.insert(tenantless, in)
				r.commit(r.take(c.id, time.Duration(i)*time.Second), in.Document, c.end, time.Duration(i)*time.Second)
			}
			for _, f := range []struct {
				q    backend.Query
				want []string
			}{
				{backend.Query{GraphID: r.ref.ID}, []string{"p2-waiting", "p2-done", "p1-failed", "p1-done"}},
				{backend.Query{GraphID: "another"}, []string{"x-running", "x-cancelled"}},
				{backend.Query{GraphHash: second.Hash}, []string{"p2-waiting", "p2-done"}},
				{backend.Query{GraphID: "another", GraphHash: second.Hash}, nil},
				{backend.Query{Statuses: []run.Status{run.Done}}, []string{"p2-done", "p1-done"}},
				{backend.Query{Statuses: []run.Status{run.Waiting, run.Running}}, []string{"x-running", "p2-waiting"}},
				{backend.Query{Statuses: []run.Status{run.Done, run.Failed, run.Cancelled}}, []string{"x-cancelled", "p2-done", "p1-failed", "p1-done"}},
				{backend.Query{GraphID: r.ref.ID, GraphHash: r.ref.Hash, Statuses: []run.Status{run.Failed, run.Running}}, []string{"p1-failed"}},
				{backend.Query{GraphID: r.ref.ID, GraphHash: second.Hash, Statuses: []run.Status{run.Failed, run.Cancelled}}, nil},
				{backend.Query{GraphID: "another", Statuses: []run.Status{run.Failed, run.Cancelled}}, []string{"x-cancelled"}},
				{backend.Query{GraphID: "absent"}, nil},
			} {
				r.lists(backend.System(), f.q, f.want...)
				r.lists(backend.Of(tenantless), f.q, f.want...)
				r.lists(backend.Of(acme), f.q)
			}
		},
	},
	{
		ID: "R5.filter-and-page", Says: "the limit, HasMore and the cursor count what the filter and the scope let through",
		run: func(r *rig) {
			for i := range 6 {
				in := opening(fmt.Sprintf("run-%d", i), r.ref, r.at(time.Duration(i)*time.Second), r.commitID())
				r.insert([]backend.Owner{acme, globex}[i%2], in)
			}
			page, err := r.store.ListRuns(r.ctx, backend.Of(acme), backend.Query{Limit: 3})
			r.ok("ListRuns", err)
			if len(page.Runs) != 3 || page.HasMore {
				r.Errorf("a page of 3 over acme's 3 runs holds %d, HasMore %v", len(page.Runs), page.HasMore)
			}
			page, err = r.store.ListRuns(r.ctx, backend.Of(acme), backend.Query{Limit: 2})
			r.ok("ListRuns", err)
			if len(page.Runs) != 2 || !page.HasMore || page.Next.Run != "run-2" {
				r.Errorf("a page of 2 over acme's 3 runs holds %d, HasMore %v, next %q", len(page.Runs), page.HasMore, page.Next.Run)
			}
			r.lists(backend.Of(acme), backend.Query{Before: page.Next}, "run-0")
			running := backend.Query{Statuses: []run.Status{run.Waiting, run.Running}, Before: page.Next}
			r.lists(backend.Of(acme), running, "run-0")
			r.lists(backend.System(), running, "run-1", "run-0")
		},
	},
	{
		ID: "R5.scope", Says: "a scope lists its own runs, the system everyone's",
		run: func(r *rig) {
			r.startFor(acme, "a", 0)
			r.startFor(globex, "b", time.Second)
			r.startFor(tenantless, "c", 2*time.Second)
			r.lists(backend.Of(acme), backend.Query{}, "a")
			r.lists(backend.Of(globex), backend.Query{}, "b")
			r.lists(backend.Of(tenantless), backend.Query{}, "c")
			r.lists(backend.System(), backend.Query{}, "c", "b", "a")
		},
	},
	{
		ID: "R5.corrupt", Says: "a list succeeds over documents that do not decode", needs: []need{writeDocument},
		run: func(r *rig) {
			r.startAt("a", 0)
			r.startAt("b", time.Second)
			before, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 10})
			r.ok("ListRuns", err)
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "a", []byte(`not a document`)))
			after, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 10})
			r.ok("ListRuns over a corrupt document", err)
			r.same("the list over a corrupt document", after, before)
		},
	},
	{
		ID: "R5.limits", Says: "the limits 1 and 1000 are valid",
		run: func(r *rig) {
			r.startAt("a", 0)
			for _, limit := range []int{1, backend.MaxLimit} {
				page, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: limit})
				r.ok("ListRuns", err)
				if len(page.Runs) != 1 {
					r.Errorf("the limit %d lists %d runs", limit, len(page.Runs))
				}
			}
		},
	},
	{
		ID: "R5.unknown-status", Says: "a status that is never stored lists nothing or is an invalid argument",
		run: func(r *rig) {
			r.startAt("a", 0)
			page, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 1, Statuses: []run.Status{run.Created}})
			if err != nil {
				r.refused("ListRuns of a status that is never stored", err, backend.ErrInvalidArgument)
			} else if len(page.Runs) > 0 {
				r.Errorf("a status that is never stored lists %d runs", len(page.Runs))
			}
		},
	},
}

// lists requires the runs of a query, in order, over all its pages and at once.
func (r *rig) lists(scope backend.Scope, q backend.Query, want ...string) {
	r.Helper()
	for _, limit := range []int{backend.MaxLimit, 2} {
		q.Limit = limit
		runs, err := allRuns(r.ctx, r.store, scope, q)
		r.ok("ListRuns", err)
		var got []string
		for _, s := range runs {
			got = append(got, s.Run)
		}
		if !slices.Equal(got, want) {
			r.Errorf("a list in pages of %d gave %q; it must give %q", limit, got, want)
		}
	}
}

// startAt inserts a tenantless run that starts at d after the start, and is due then.
func (r *rig) startAt(id string, d time.Duration) *run.Document {
	r.Helper()
	return r.startFor(tenantless, id, d)
}

// startFor inserts a run of an owner that starts at d after the start, and is due then.
func (r *rig) startFor(owner backend.Owner, id string, d time.Duration) *run.Document {
	r.Helper()
	in := opening(id, r.ref, r.at(d), r.commitID())
	r.insert(owner, in)
	return in.Document
}

// canonical is JSON text in its canonical form.
func (r *rig) canonical(text string) value.Value {
	r.Helper()
	v, err := value.Canonical([]byte(text))
	r.ok("value.Canonical of "+text, err)
	return v
}

// corrupt requires the typed error of a row that cannot be read.
func (r *rig) corrupt(what string, err error, id string) {
	r.Helper()
	r.refused(what, err, backend.ErrCorrupt)
	c, ok := asCorrupt(err)
	if !ok {
		if err != nil {
			r.Errorf("%s answered %T; it must answer *backend.CorruptError", what, err)
		}
		return
	}
	if c.Run != id || c.What == "" {
		r.Errorf("%s must name the run and what of it is corrupt: run %q, %q", what, c.Run, c.What)
	}
}
