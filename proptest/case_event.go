package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// E1 to E3: events.
var eventCases = []Case{
	{
		ID: "E1.append-only", Says: "events are appended and never changed, whatever happens to the run",
		run: func(r *rig) {
			d := r.put("a")
			want := r.look().Events["a"]
			l := r.take("a", 0)
			for range 3 {
				p := next(d, toRetain, r.start, r.start)
				_, err := r.send(l, p)
				r.ok("Commit", err)
				d, want = p.Document, append(want, p.Events...)
				r.events("a", want)
			}
			m := r.mutate("a", func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
			events := r.look().Events["a"]
			r.same("the older events", events[:len(want)], want)
			if len(events) != len(want)+2 || events[len(events)-1].Seq != m.Document.EventSeq {
				r.Errorf("the mutation appended %d events", len(events)-len(want))
			}
		},
	},
	{
		ID: "E1.idempotent", Says: "an event that is stored already with the same content is no conflict and no second event",
		run: func(r *rig) {
			d := r.put("a")
			first := r.look().Events["a"]
			l := r.take("a", 0)
			p := next(d, toRetain, r.start, r.start)
			p.Events = append(slices.Clone(first), p.Events...)
			_, err := r.send(l, p)
			r.ok("Commit that repeats stored events", err)
			r.events("a", p.Events)
		},
	},
	{
		ID: "E1.content", Says: "every field of an event comes back as it was",
		run: func(r *rig) {
			d := r.put("a")
			e := run.Event{
				Run: "a", Seq: 3, Type: run.EventNodeFailed, At: r.at(tick), Step: 1, Node: "work", Task: "a:1:work", Attempt: 3,
				Edge: "start", Field: "f", Version: 7, Interrupt: "q", Reason: "because", Wake: r.at(time.Hour),
				Failure: &run.Failure{Code: "c", Message: "m\u0000\u2028", Node: "work", Details: r.canonical(`{"a":[1.0,9007199254740993]}`)},
				Data:    r.canonical(`{"q":"\u00e9\u0000"}`),
			}
			p := edited(next(d, toRetain, r.start, r.start), func(p *run.Proposal, _ *run.Document) { p.Events[0] = e })
			_, err := r.send(r.take("a", 0), p)
			r.ok("Commit", err)
			got, err := r.store.FetchEvent(r.ctx, backend.System(), "a", 3)
			r.ok("FetchEvent", err)
			r.same("the event", got, e)
		},
	},
	{
		ID: "E2.fetch", Says: "fetching an event answers it, or not found when there is none",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			for _, want := range in.Events {
				got, err := r.store.FetchEvent(r.ctx, backend.System(), "a", want.Seq)
				r.ok("FetchEvent", err)
				r.same("the event", got, want)
			}
			_, err := r.store.FetchEvent(r.ctx, backend.System(), "a", 3)
			r.refused("FetchEvent of an absent event", err, backend.ErrNotFound)
			_, err = r.store.FetchEvent(r.ctx, backend.System(), "gone", 1)
			r.refused("FetchEvent of an absent run", err, backend.ErrNotFound)
		},
	},
	{
		ID: "E2.latest", Says: "the latest event is the one with the greatest sequence, and none for a visible run that has none",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			got, err := r.store.LatestEvent(r.ctx, backend.System(), "a")
			r.ok("LatestEvent", err)
			r.same("the latest event", got, &in.Events[1])
			p := next(in.Document, toRetain, r.start, r.start)
			_, err = r.send(r.take("a", 0), p)
			r.ok("Commit", err)
			got, err = r.store.LatestEvent(r.ctx, backend.System(), "a")
			r.ok("LatestEvent", err)
			r.same("the latest event", got, &p.Events[1])

			none := r.draft("b", func(in *backend.Initialization) { in.Events, in.Document.EventSeq = nil, 0 })
			r.insert(tenantless, none)
			got, err = r.store.LatestEvent(r.ctx, backend.System(), "b")
			r.ok("LatestEvent of a run without events", err)
			if got != nil {
				r.Errorf("the latest event of a run without events is %v", got)
			}
			page, err := r.store.ListEvents(r.ctx, backend.System(), "b", backend.EventQuery{Limit: 10})
			r.ok("ListEvents of a run without events", err)
			r.same("the page", page, backend.EventPage{})
			_, err = r.store.LatestEvent(r.ctx, backend.System(), "gone")
			r.refused("LatestEvent of an absent run", err, backend.ErrNotFound)
		},
	},
	{
		ID: "E2.pages", Says: "a list is ascending after an exclusive sequence; the page carries next, has-more, oldest and latest",
		run: func(r *rig) {
			r.put("other")
			r.take("other", 0)
			d := r.put("a")
			l := r.take("a", 0)
			for range 3 {
				d = r.commit(l, d, toRetain, 0)
			}
			all := r.look().Events["a"]
			if len(all) != 8 {
				r.Fatalf("there are %d events; there must be 8", len(all))
			}
			for limit := 1; limit <= 9; limit++ {
				for after := int64(0); after <= 9; after++ {
					page, err := r.store.ListEvents(r.ctx, backend.System(), "a", backend.EventQuery{After: after, Limit: limit})
					r.ok("ListEvents", err)
					from := min(int(after), 8)
					to := min(from+limit, 8)
					want := backend.EventPage{Events: all[from:to], Next: after, HasMore: to < 8, Oldest: 1, Latest: 8}
					if to > from {
						want.Next = int64(to)
					}
					r.same(fmt.Sprintf("the page of %d after %d", limit, after), page, want)
				}
			}
		},
	},
	{
		ID: "E2.gaps", Says: "gaps are legal: in the sequences of a run, and in what a page shows",
		run: func(r *rig) {
			d := r.put("a")
			p := edited(next(d, toRetain, r.start, r.start), func(p *run.Proposal, d *run.Document) {
				p.Events[0].Seq, p.Events[1].Seq, d.EventSeq = 5, 9, 9
			})
			_, err := r.send(r.take("a", 0), p)
			r.ok("Commit", err)
			page, err := r.store.ListEvents(r.ctx, backend.System(), "a", backend.EventQuery{After: 2, Limit: 1})
			r.ok("ListEvents", err)
			r.same("the page", page, backend.EventPage{Events: p.Events[:1], Next: 5, HasMore: true, Oldest: 1, Latest: 9})
			page, err = r.store.ListEvents(r.ctx, backend.System(), "a", backend.EventQuery{After: 6, Limit: 5})
			r.ok("ListEvents", err)
			r.same("the page", page, backend.EventPage{Events: p.Events[1:], Next: 9, Oldest: 1, Latest: 9})
			_, err = r.store.FetchEvent(r.ctx, backend.System(), "a", 6)
			r.refused("FetchEvent in a gap", err, backend.ErrNotFound)
		},
	},
	{
		ID: "E3.corrupt", Says: "an event that cannot be read is a typed error of every read that meets it, and never skipped", needs: []need{writeEvent},
		run: func(r *rig) {
			r.bring("a", toDone)
			r.ok("WriteEvent", r.hooks.WriteEvent(r.ctx, "a", 2, []byte(`{"seq":`)))
			_, err := r.store.FetchEvent(r.ctx, backend.System(), "a", 2)
			r.corrupt("FetchEvent of a corrupt event", err, "a")
			_, err = r.store.ListEvents(r.ctx, backend.System(), "a", backend.EventQuery{Limit: 10})
			r.corrupt("ListEvents over a corrupt event", err, "a")
			_, err = r.store.FetchEvent(r.ctx, backend.System(), "a", 1)
			r.ok("FetchEvent beside a corrupt event", err)
			r.ok("WriteEvent", r.hooks.WriteEvent(r.ctx, "a", 4, []byte(`{`)))
			_, err = r.store.LatestEvent(r.ctx, backend.System(), "a")
			r.corrupt("LatestEvent of a corrupt event", err, "a")
		},
	},
}

// G1 to G3: graphs.
var graphCases = []Case{
	{
		ID: "G1.digest", Says: "a graph is stored only under the digest of its bytes",
		run: func(r *rig) {
			ref, raw := published("proof", 0)
			other, _ := published("proof", 1)
			bad := ref
			bad.Hash = other.Hash
			r.refused("SaveGraph under another digest", r.store.SaveGraph(r.ctx, acme, bad, raw), backend.ErrInvalidGraphHash)
			_, err := r.store.FetchGraph(r.ctx, acme, bad)
			r.refused("FetchGraph of what was refused", err, backend.ErrNotFound)
			_, err = r.store.LatestGraph(r.ctx, acme, "proof")
			r.refused("LatestGraph of what was refused", err, backend.ErrNotFound)
		},
	},
	{
		ID: "G1.again", Says: "the same bytes again change nothing, the publication instant included",
		run: func(r *rig) {
			ref := r.publish(acme, "proof", 0)
			first, err := r.store.LatestGraph(r.ctx, acme, "proof")
			r.ok("LatestGraph", err)
			r.publish(acme, "proof", 1)
			if r.hooks.SetClock != nil {
				r.hooks.SetClock(r.at(1000 * time.Hour))
			}
			r.untouched("publishing again", func() { r.publish(acme, "proof", 0) })
			page, err := r.store.GraphVersions(r.ctx, acme, "proof", backend.GraphQuery{Limit: 10})
			r.ok("GraphVersions", err)
			for _, v := range page.Versions {
				if v.Ref == ref {
					r.same("the version", v, first)
				}
			}
		},
	},
	{
		ID: "G1.conflict", Says: "other bytes that are stored under the version are a conflict", needs: []need{writeGraph},
		run: func(r *rig) {
			ref := r.publish(acme, "proof", 0)
			_, other := published("proof", 1)
			r.ok("WriteGraph", r.hooks.WriteGraph(r.ctx, acme, ref, other))
			_, raw := published("proof", 0)
			r.refused("SaveGraph over other bytes", r.store.SaveGraph(r.ctx, acme, ref, raw), backend.ErrGraphConflict)
		},
	},
	{
		ID: "G1.per-owner", Says: "graphs belong to one owner: nobody else sees one, and each may store the same one",
		run: func(r *rig) {
			ref := r.publish(acme, "proof", 0)
			for _, o := range []backend.Owner{globex, tenantless} {
				_, err := r.store.FetchGraph(r.ctx, o, ref)
				r.refused("FetchGraph of another owner's graph", err, backend.ErrNotFound)
				_, err = r.store.LatestGraph(r.ctx, o, "proof")
				r.refused("LatestGraph of another owner's graph", err, backend.ErrNotFound)
				page, err := r.store.GraphVersions(r.ctx, o, "proof", backend.GraphQuery{Limit: 10})
				r.ok("GraphVersions", err)
				r.same("the versions of another owner's graph", page, backend.GraphPage{})
				r.publish(o, "proof", 0)
				_, err = r.store.FetchGraph(r.ctx, o, ref)
				r.ok("FetchGraph of one's own", err)
			}
		},
	},
	{
		ID: "G1.own-clock", Says: "the publication instant comes from the store's clock", needs: []need{setClock},
		run: func(r *rig) {
			r.hooks.SetClock(r.at(time.Hour).Add(999 * time.Nanosecond))
			ref := r.publish(acme, "proof", 0)
			v, err := r.store.LatestGraph(r.ctx, acme, "proof")
			r.ok("LatestGraph", err)
			r.same("the version", v, backend.GraphVersion{Ref: ref, PublishedAt: r.at(time.Hour)})
		},
	},
	{
		ID: "G2.bytes", Says: "the bytes come back as they were",
		run: func(r *rig) {
			ref := r.publish(acme, "proof", 0)
			_, want := published("proof", 0)
			got, err := r.store.FetchGraph(r.ctx, acme, ref)
			r.ok("FetchGraph", err)
			r.same("the bytes", string(got), string(want))
		},
	},
	{
		ID: "G2.corrupt", Says: "bytes that do not match their hash are a corrupt graph, never absence", needs: []need{writeGraph},
		run: func(r *rig) {
			ref := r.publish(acme, "proof", 0)
			_, other := published("proof", 1)
			r.ok("WriteGraph", r.hooks.WriteGraph(r.ctx, acme, ref, other))
			_, err := r.store.FetchGraph(r.ctx, acme, ref)
			r.refused("FetchGraph of corrupt bytes", err, backend.ErrCorruptGraph)
		},
	},
	{
		ID: "G2.absent", Says: "a version that is not stored is not found",
		run: func(r *rig) {
			r.publish(acme, "proof", 0)
			other, _ := published("proof", 1)
			_, err := r.store.FetchGraph(r.ctx, acme, other)
			r.refused("FetchGraph of an absent version", err, backend.ErrNotFound)
			_, err = r.store.LatestGraph(r.ctx, acme, "absent")
			r.refused("LatestGraph of an absent graph", err, backend.ErrNotFound)
		},
	},
	{
		ID: "G3.order", Says: "versions go by publication instant and hash, descending, and the latest is the first of them",
		run: func(r *rig) {
			r.versions(6)
			page, err := r.store.GraphVersions(r.ctx, acme, "proof", backend.GraphQuery{Limit: 10})
			r.ok("GraphVersions", err)
			if len(page.Versions) != 6 || page.HasMore {
				r.Fatalf("six versions list as %d, HasMore %v", len(page.Versions), page.HasMore)
			}
			for i, v := range page.Versions[1:] {
				before := page.Versions[i]
				if before.PublishedAt.Before(v.PublishedAt) || before.PublishedAt.Equal(v.PublishedAt) && before.Ref.Hash <= v.Ref.Hash {
					r.Errorf("version %s of %v comes before %s of %v", before.Ref.Hash, before.PublishedAt, v.Ref.Hash, v.PublishedAt)
				}
			}
			latest, err := r.store.LatestGraph(r.ctx, acme, "proof")
			r.ok("LatestGraph", err)
			r.same("the latest version", latest, page.Versions[0])
		},
	},
	{
		ID: "G3.same-instant", Says: "versions that were published at the same instant go by hash, descending", needs: []need{setClock},
		run: func(r *rig) {
			r.hooks.SetClock(r.at(time.Hour))
			r.versions(5)
			page, err := r.store.GraphVersions(r.ctx, acme, "proof", backend.GraphQuery{Limit: 10})
			r.ok("GraphVersions", err)
			if !slices.IsSortedFunc(page.Versions, func(a, b backend.GraphVersion) int { return strings.Compare(b.Ref.Hash, a.Ref.Hash) }) || len(page.Versions) != 5 {
				r.Errorf("the versions of one instant are %v", page.Versions)
			}
			r.pagesOfVersions(page.Versions)
		},
	},
	{
		ID: "G3.pages", Says: "the cursor is exclusive, pages join at every size, and an empty page echoes its cursor",
		run: func(r *rig) {
			r.versions(5)
			page, err := r.store.GraphVersions(r.ctx, acme, "proof", backend.GraphQuery{Limit: 10})
			r.ok("GraphVersions", err)
			r.pagesOfVersions(page.Versions)
			last := page.Next
			page, err = r.store.GraphVersions(r.ctx, acme, "proof", backend.GraphQuery{Limit: 10, Before: last})
			r.ok("GraphVersions", err)
			r.same("the page behind the last version", page, backend.GraphPage{Next: last})
			page, err = r.store.GraphVersions(r.ctx, acme, "absent", backend.GraphQuery{Limit: 10})
			r.ok("GraphVersions of an absent graph", err)
			r.same("the page of an absent graph", page, backend.GraphPage{})
		},
	},
}

// versions publishes n versions of acme's graph.
func (r *rig) versions(n int) {
	r.Helper()
	for i := range n {
		r.publish(acme, "proof", i)
	}
}

// pagesOfVersions requires that pages of every size join to all versions.
func (r *rig) pagesOfVersions(all []backend.GraphVersion) {
	r.Helper()
	for limit := 1; limit <= len(all)+1; limit++ {
		var got []backend.GraphVersion
		q := backend.GraphQuery{Limit: limit}
		for range len(all) + 2 {
			page, err := r.store.GraphVersions(r.ctx, acme, "proof", q)
			r.ok("GraphVersions", err)
			got = append(got, page.Versions...)
			if more := len(got) < len(all); page.HasMore != more || len(page.Versions) > limit {
				r.Fatalf("limit %d: after %d of %d versions HasMore is %v", limit, len(got), len(all), page.HasMore)
			}
			if !page.HasMore {
				break
			}
			q.Before = page.Next
		}
		r.same(fmt.Sprintf("the versions in pages of %d", limit), got, all)
	}
}
