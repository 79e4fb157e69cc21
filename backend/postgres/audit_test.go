package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/internal/pgtest"
)

// damage plants one violation, past every check of the store.
type damage struct {
	check string
	sql   string
	drops string // the constraint that is in the way; then the schema is a finding as well
	says  string // is in the finding's detail
	run   string // the finding's; "ready" when empty, "-" for none
	// mended: the finding has a repair, after which the store is sound.
	mended bool
}

func ofDocument(of, old, new string) string {
	return fmt.Sprintf(`update runs set document = convert_to(replace(convert_from(document, 'UTF8'), '%s', '%s'), 'UTF8') where id = '%s'`, old, new, of)
}

func ofEvent(of string, seq int, old, new string) string {
	return fmt.Sprintf(`update events set body = convert_to(replace(convert_from(body, 'UTF8'), '%s', '%s'), 'UTF8') where run_id = '%s' and seq = %d`, old, new, of, seq)
}

// oneEvent makes a row of one event of a row of two, the first or the second, under a sequence.
func oneEvent(of string, row, index, seq int) string {
	return fmt.Sprintf(`update events set seq = %d, body = convert_to((convert_from(body, 'UTF8')::json -> %d)::text, 'UTF8') where run_id = '%s' and seq = %d;`,
		seq, index+1, of, row)
}

func proofHash() string {
	ref, _ := aGraph()
	return ref.Hash
}

// The store of these tests has the runs ready, claimed, keyed (also ready, under the key k)
// and done.
var damages = []damage{
	{check: "I1.schema", run: "-", says: "runs_claimed", sql: "drop index runs_claimed"},
	{check: "I1.schema", run: "-", says: "more", sql: "alter table graphs add column more text"},
	{check: "I1.orphan", run: "-", says: "1 rows of events of run lost", sql: `insert into events (run_id, seq, body) values ('lost', 1, '\x00')`},
	{check: "I1.orphan", run: "-", says: "1 starts of run lost", sql: "insert into starts (started_at, id, owner, graph_id, graph_hash) values (now(), 'lost', '', 'g', 'h')"},
	{check: "I1.orphan", run: "-", says: "in no list", sql: "delete from starts where id = 'ready'"},
	{check: "I2.missing", drops: "alter column document drop not null", sql: "update runs set document = null where id = 'ready'"},
	{check: "I2.document", sql: ofDocument("ready", `"status":"running"`, `"status":"runnin`)},
	{check: "I2.format", says: "format 99", sql: ofDocument("ready", `"format":2`, `"format":99`)},
	{check: "I2.sealed", run: "-", says: `1 documents and 0 events are sealed and do not open here (keys ["old"])`, sql: `update runs set document = '\x0062656c617901036f6c6478' where id = 'ready'`},
	{check: "I2.sealed", run: "-", says: "0 documents and 2 events", sql: `update events set body = '\x5b312c0062656c617901036f6c6478' where run_id = 'ready'`},
	{check: "I2.sealed", run: "-", says: "0 documents and 1 events", sql: oneEvent("ready", 2, 1, 2) + `update events set body = '\x0062656c617901036f6c6478' where run_id = 'ready'`},
	{check: "I2.document", says: "its envelope is cut off", sql: `update runs set document = '\x0062656c617901036f6c' where id = 'ready'`},
	{check: "I2.identity", says: "run other", sql: ofDocument("ready", `"id":"ready"`, `"id":"other"`)},
	{check: "I2.identity", says: "graph other", sql: ofDocument("ready", `"id":"proof"`, `"id":"other"`)},
	{check: "I2.identity", says: "started at", sql: ofDocument("ready", `"started_at":"2031`, `"started_at":"2029`)},
	{check: "I2.sequence", says: "the document is at 7", sql: ofDocument("ready", `"seq":1`, `"seq":7`)},
	{check: "I2.checkpoint", says: "of sequence 7", sql: ofEvent("ready", 2, `"checkpoint_seq":1`, `"checkpoint_seq":7`)},
	{check: "I2.checkpoint", says: "of commit other", sql: "update events set checkpoint_id = 'other' where run_id = 'ready' and seq = 2"},
	{check: "I2.checkpoint", says: "no checkpoint event", sql: oneEvent("ready", 2, 0, 1)},
	{check: "I3.missing", sql: "update runs set graph_hash = 'other' where id = 'ready'; update starts set graph_hash = 'other' where id = 'ready';" + ofDocument("ready", proofHash(), "other")},
	{check: "I3.digest", run: "-", says: "proof", sql: `update graphs set body = '\x00'`},
	{check: "I4.shape", says: "wake, token, claimed-at", drops: "drop constraint shape", sql: "update runs set claim_token = 't', claimed_at = '2031-05-06 07:08:09Z' where id = 'ready'"},
	{check: "I4.shape", says: "wake, claimed-at", drops: "drop constraint claim_pair", sql: "update runs set claimed_at = '2031-05-06 07:08:09Z' where id = 'ready'"},
	{check: "I4.shape", says: "finish instant is none", run: "done", drops: "drop constraint finished", sql: "update runs set finished_at = null where id = 'done'"},
	{check: "I5.claim", run: "claimed", says: "before now", sql: "update runs set claimed_at = claimed_at - interval '1 hour' where id = 'claimed'"},
	{check: "I6.event", says: "event 2", sql: `update events set body = '\x00' where run_id = 'ready' and seq = 2`},
	{check: "I6.event", says: "event 2", sql: oneEvent("ready", 2, 1, 2) + `update events set body = '\x00' where run_id = 'ready' and seq = 2`},
	{check: "I6.event", says: "event 1 of run other", sql: ofEvent("ready", 2, `"run":"ready","seq":1`, `"run":"other","seq":1`)},
	{check: "I6.event", run: "done", says: "event 4: it is event 5 of run done", sql: ofEvent("done", 4, `"run":"done","seq":4`, `"run":"done","seq":5`)},
	{check: "I6.event", run: "done", says: "event 2 is stored twice: the row of event 4 begins with it", sql: ofEvent("done", 4, `[3,`, `[2,{},`)},
	{check: "I6.event", says: "its row does not hold the events 1 to 3", sql: "update events set seq = 3 where run_id = 'ready'"},
	{check: "I6.event", says: "its row does not say where it begins", sql: ofEvent("ready", 2, `[1,`, `[x,`)},
	{check: "I6.event", says: "something follows its row", sql: ofEvent("ready", 2, `}]`, `}]]`)},
	{check: "I6.gap", run: "done", says: "event 4 follows event 2", sql: oneEvent("done", 4, 1, 4) + ofEvent("done", 2, "run_initialized\"}", "run_completed\"}")},
	{check: "I6.beyond", says: "event 3, the document knows 2", sql: `insert into events (run_id, seq, body) values ('ready', 3,
		convert_to('{"at":"2031-05-06T07:08:09.123456Z","node":"work","run":"ready","seq":3,"step":1,"type":"node_completed"}', 'UTF8'))`},
	{check: "I7.document", says: "the document is running, the row waiting", sql: "update runs set status = 'waiting', wake_at = null where id = 'ready'"},
	{check: "I7.event", run: "done", says: "the events end cancelled", sql: ofEvent("done", 4, `"type":"run_completed"`, `"type":"run_cancelled"`)},
	{check: "I8.timers", says: "timer", sql: ofDocument("ready", `"pending":["work"]`, `"pending":["work"],"timers":[{"kind":"task","key":"ready:1:work","at":"2030-01-02T03:04:05.000006Z"}]`)},
	{check: "I8.wake", says: "nothing", drops: "drop constraint shape", sql: "update runs set wake_at = null where id = 'ready'", mended: true},
	{check: "I9.attempts", run: "claimed", says: "6 attempts, the budget is 5", sql: "update runs set claim_attempts = 6 where id = 'claimed'"},
	{check: "I9.abandons", says: "21 abandons, the budget is 20", sql: "update runs set claim_abandons = 21 where id = 'ready'"},
	{check: "I9.counters", says: "-1 attempts", drops: "drop constraint counters", sql: "update runs set claim_attempts = -1 where id = 'ready'"},
	{check: "I10.row", run: "done", says: "wake", drops: "drop constraint shape", sql: "update runs set wake_at = now() where id = 'done'", mended: true},
	{check: "I10.document", run: "done", sql: ofDocument("done", `"seq":2`, `"timers":[{"kind":"task","key":"x","at":"2030-01-02T03:04:05.000006Z"}],"seq":2`)},
	{check: "I11.order", says: "updated at", sql: "update runs set updated_at = '2000-01-01Z' where id = 'ready'"},
	{check: "I11.order", run: "done", says: "finished at", sql: "update runs set finished_at = '2000-01-01Z' where id = 'done'"},
	{check: "I12.key", run: "-", says: "no run", sql: "update start_keys set run_id = 'lost'", mended: true},
	{check: "I12.key", run: "keyed", says: "another owner", sql: "update start_keys set owner = 'acme'", mended: true},
}

var auditPolicy = backend.AuditPolicy{Now: began, MaxClaimAge: 10 * time.Minute, MaxAttempts: 5, MaxAbandons: 20}

// soundStore is the store that the damages are done to.
func soundStore(t *testing.T, a access) *postgres.Store {
	t.Helper()
	s := newStore(t, a, postgres.Options{})
	working := func(in *backend.Initialization) { in.Document.Pending = []string{"work"} }
	claimed := func(in *backend.Initialization) {
		in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
	}
	insert := func(id string, edit ...func(*backend.Initialization)) (backend.Initialization, backend.Inserted) {
		t.Helper()
		in := draft(id, edit...)
		inserted, err := s.InsertRun(t.Context(), backend.Tenantless(), in)
		if err != nil {
			t.Fatal(err)
		}
		return in, inserted
	}
	insert("ready", working)
	insert("keyed", working, keyed("k"))
	insert("claimed", working, claimed)
	in, inserted := insert("done", claimed)
	if _, err := s.Commit(t.Context(), backend.System(), ending(in.Document, inserted.Lease.Token)); err != nil {
		t.Fatal(err)
	}
	return s
}

func auditAll(t *testing.T, s *postgres.Store) (all []backend.Finding) {
	t.Helper()
	for f, err := range s.Audit(t.Context(), auditPolicy) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// TestAuditFindsEachDamage (X9): a sound store has no finding; every check of the catalogue finds
// what it is for, alone and by its name, and what it can mend is sound afterwards.
func TestAuditFindsEachDamage(t *testing.T) {
	a := direct(t)
	if found := auditAll(t, soundStore(t, a)); len(found) != 0 {
		t.Fatalf("a sound store: %+v", found)
	}
	planted := map[string]bool{"I1.storage": true} // by TestAuditFindsUnreadablePages
	for i, d := range damages {
		planted[d.check] = true
		t.Run(fmt.Sprintf("%s/%d", d.check, i), func(t *testing.T) { d.test(t, a) })
	}
	for _, c := range backend.AuditChecks() {
		if !planted[c.ID] {
			t.Errorf("nothing is planted for %s", c.ID)
		}
	}
}

func (d damage) test(t *testing.T, a access) {
	s := soundStore(t, a)
	text := "set local search_path = " + pgx.Identifier{s.Schema()}.Sanitize() + ";"
	if d.drops != "" {
		text += "alter table runs " + d.drops + ";"
	}
	if _, err := a.raw.Exec(t.Context(), "begin;"+text+d.sql+";commit", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	found := auditAll(t, s)
	if d.drops != "" {
		if len(found) == 0 || found[0].Check != "I1.schema" {
			t.Fatalf("the changed schema is not found: %+v", found)
		}
		found = found[1:]
	}
	if len(found) != 1 {
		t.Fatalf("%d findings: %+v", len(found), found)
	}
	want := backend.NewFinding(d.check, found[0].Detail)
	want.Graph, want.Key, want.Tenant = found[0].Graph, found[0].Key, found[0].Tenant
	if want.Run = d.run; d.run == "" {
		want.Run = "ready"
	} else if d.run == "-" {
		want.Run = ""
	}
	if diff := cmp.Diff(want, found[0]); diff != "" {
		t.Errorf("the finding differs:\n%s", diff)
	}
	if !strings.Contains(found[0].Detail, d.says) {
		t.Errorf("%q does not say %q", found[0].Detail, d.says)
	}
	d.repair(t, s, found[0])
}

// repair: what has a repair is mended by it, once; a dry run says so and changes nothing.
func (d damage) repair(t *testing.T, s *postgres.Store, f backend.Finding) {
	t.Helper()
	ctx := context.Background()
	if !d.mended {
		if _, err := s.Repair(ctx, f, false); !errors.Is(err, backend.ErrUnsupported) || f.Repair != "" {
			t.Errorf("a repair that is not there: %v, %q", err, f.Repair)
		}
		return
	}
	sound := 0
	if d.drops != "" {
		sound = 1
	}
	for _, step := range []struct {
		dryRun, want bool
		left         int
	}{{true, true, 1}, {false, true, 0}, {true, false, 0}, {false, false, 0}} {
		got, err := s.Repair(ctx, f, step.dryRun)
		if err != nil || got != step.want {
			t.Errorf("repair (dry run %v) is %v, %v; it must be %v", step.dryRun, got, err, step.want)
		}
		if left := auditAll(t, s); len(left) != step.left+sound {
			t.Errorf("after a repair (dry run %v): %+v", step.dryRun, left)
		}
	}
}

// TestAuditFindsUnreadablePages (X9, I1.storage): pages that the server cannot read are a finding, of the
// part that they are of, and what lies on other pages is judged all the same.
func TestAuditFindsUnreadablePages(t *testing.T) {
	cluster := pgtest.Start(t)
	pool := newPool(t, cluster.DSN(), pgx.QueryExecModeExec, 4)
	a := access{pool: func() *pgxpool.Pool { return pool }, raw: pool}
	s := newStore(t, a, postgres.Options{Schema: "damaged", PollOnly: true})
	start(t, s, backend.Tenantless(), named("run", 3), func(in *backend.Initialization) { in.Key = in.Document.ID })
	exec := func(text string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	exec("update damaged.runs set document = 'garbage' where id = 'run-00001'")
	var path string
	if err := pool.QueryRow(t.Context(), "select pg_relation_filepath('damaged.start_keys'::regclass)").Scan(&path); err != nil {
		t.Fatal(err)
	}
	exec("checkpoint") // so that the recovery does not touch the page
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	spoil(t, cluster.File(path))
	if err := cluster.Up(); err != nil {
		t.Fatal(err)
	}
	var storage, document []string
	for f, err := range s.Audit(t.Context(), auditPolicy) {
		if err != nil {
			t.Fatal(err)
		}
		switch f.Check {
		case "I1.storage":
			storage = append(storage, f.Detail)
		case "I2.document":
			document = append(document, f.Run)
		}
	}
	if len(storage) != 1 || !strings.Contains(storage[0], "the check of the start keys ended early") {
		t.Errorf("of spoiled keys the audit says %q", storage)
	}
	if !slices.Equal(document, []string{"run-00001"}) {
		t.Errorf("beside spoiled keys the damaged documents are %v", document)
	}
}

// spoil overwrites the head of a table's first page.
func spoil(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("this is no page of any table"), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
