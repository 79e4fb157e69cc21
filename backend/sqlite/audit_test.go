package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
)

// damage plants one violation, past every check of the store.
type damage struct {
	check string
	sql   string
	// file, instead of sql, changes the file of the closed store.
	file func(t *testing.T, path string)
	// says is in the finding's detail.
	says string
	// run is the finding's; "ready" when empty, "-" for none.
	run string
	// mended: the finding has a repair, after which the store is sound.
	mended bool
}

func ofDocument(of, old, new string) string {
	return fmt.Sprintf(`update belay_documents set body = cast(replace(cast(body as text), '%s', '%s') as blob)
		where run = (select no from belay_runs where id = '%s')`, old, new, of)
}

func ofEvent(of string, seq int, old, new string) string {
	return fmt.Sprintf(`update belay_events set body = cast(replace(cast(body as text), '%s', '%s') as blob)
		where seq = %d and run = (select no from belay_runs where id = '%s')`, old, new, seq, of)
}

// oneEvent makes a row of one event of a row of two, the first or the second, under a sequence.
func oneEvent(of string, row, index, seq int) string {
	return fmt.Sprintf(`update belay_events set seq = %d, body = cast(json_extract(cast(body as text), '$[%d]') as blob)
		where seq = %d and run = (select no from belay_runs where id = '%s')`, seq, index+1, row, of)
}

// The store of these tests has the runs ready, claimed, keyed (also ready, under the key k)
// and done.
var damages = []damage{
	{check: "I1.storage", run: "-", says: "belay_graphs_newest", file: spoilIndex},
	{check: "I1.schema", run: "-", says: "belay_drivers", sql: "alter table belay_drivers add column more text"},
	{check: "I1.orphan", run: "-", says: "1 document", sql: "insert into belay_documents (run, body) values (99, x'00')"},
	{check: "I1.orphan", run: "-", says: "1 events", sql: "insert into belay_events (run, seq, body) values (99, 1, x'00')"},
	{check: "I2.missing", sql: "delete from belay_documents where run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.document", sql: ofDocument("ready", `"status":"running"`, `"status":"runnin`)},
	{check: "I2.document", says: "pending", sql: ofDocument("done", `"seq":2`, `"pending":["work"],"seq":2`), run: "done"},
	{check: "I2.format", says: "format 99", sql: ofDocument("ready", `"format":2`, `"format":99`)},
	{check: "I2.sealed", run: "-", says: `1 documents and 0 events are sealed and do not open here (keys ["old"])`, sql: "update belay_documents set body = x'0062656c617901036f6c6478' where run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.sealed", run: "-", says: "0 documents and 2 events", sql: "update belay_events set body = x'5b312c0062656c617901036f6c6478' where run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.sealed", run: "-", says: "0 documents and 1 events", sql: oneEvent("ready", 2, 1, 2) + "; update belay_events set body = x'0062656c617901036f6c6478' where run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.document", says: "its envelope is cut off", sql: "update belay_documents set body = x'0062656c617901036f6c' where run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.identity", says: "run other", sql: ofDocument("ready", `"id":"ready"`, `"id":"other"`)},
	{check: "I2.identity", says: "graph other", sql: ofDocument("ready", `"id":"proof"`, `"id":"other"`)},
	{check: "I2.identity", says: "started at", sql: ofDocument("ready", `"started_at":"2030`, `"started_at":"2029`)},
	{check: "I2.sequence", says: "the document is at 7", sql: ofDocument("ready", `"seq":1`, `"seq":7`)},
	{check: "I2.checkpoint", says: "of sequence 7", sql: ofEvent("ready", 2, `"checkpoint_seq":1`, `"checkpoint_seq":7`)},
	{check: "I2.checkpoint", says: "of commit other", sql: "update belay_events set checkpoint_id = 'other' where seq = 2 and run = (select no from belay_runs where id = 'ready')"},
	{check: "I2.checkpoint", says: "no checkpoint event", sql: oneEvent("ready", 2, 0, 1)},
	{check: "I3.missing", sql: "update belay_runs set graph_hash = 'other' where id = 'ready';" + ofDocument("ready", testRef().Hash, "other")},
	{check: "I3.digest", run: "-", says: testRef().Hash, sql: "update belay_graphs set body = x'00'"},
	{check: "I4.shape", says: "wake, token, claimed-at", sql: "update belay_runs set claim_token = 't', claimed_at = 1893553445000006 where id = 'ready'"},
	{check: "I4.shape", says: "wake, claimed-at", sql: "update belay_runs set claimed_at = 1893553445000006 where id = 'ready'"},
	{check: "I4.shape", says: "poison instant", sql: "update belay_runs set wake_at = null, poisoned_at = 1 where id = 'ready'"},
	{check: "I4.shape", says: "finish instant is none", run: "done", sql: "update belay_runs set finished_at = null where id = 'done'"},
	{check: "I5.claim", run: "claimed", says: "before now", sql: fmt.Sprintf("update belay_runs set claimed_at = %d where id = 'claimed'", testClock.Add(-time.Hour).UnixMicro())},
	{check: "I6.event", says: "event 2", sql: "update belay_events set body = x'00' where seq = 2 and run = (select no from belay_runs where id = 'ready')"},
	{check: "I6.event", says: "event 2", sql: oneEvent("ready", 2, 1, 2) + "; update belay_events set body = x'00' where seq = 2 and run = (select no from belay_runs where id = 'ready')"},
	{check: "I6.event", says: "event 1 of run other", sql: ofEvent("ready", 2, `"run":"ready","seq":1`, `"run":"other","seq":1`)},
	{check: "I6.event", run: "done", says: "event 4: it is event 5 of run done", sql: ofEvent("done", 4, `"run":"done","seq":4`, `"run":"done","seq":5`)},
	{check: "I6.event", run: "done", says: "event 2 is stored twice: the row of event 4 begins with it", sql: `update belay_events set body = cast('[2,' ||
		(select json_extract(cast(body as text), '$[2]') from belay_events where seq = 2 and run = (select no from belay_runs where id = 'done'))
		|| substr(cast(body as text), 3) as blob) where seq = 4`},
	{check: "I6.event", says: "its row does not hold the events 1 to 3", sql: "update belay_events set seq = 3 where run = (select no from belay_runs where id = 'ready')"},
	{check: "I6.event", says: "its row does not say where it begins", sql: ofEvent("ready", 2, `[1,`, `[x,`)},
	{check: "I6.event", says: "something follows its row", sql: ofEvent("ready", 2, `}]`, `}]]`)},
	{check: "I6.gap", run: "done", says: "event 4 follows event 2", sql: oneEvent("done", 4, 1, 4) + ";" + ofEvent("done", 2, "run_initialized\"}", "run_completed\"}")},
	{check: "I6.beyond", says: "event 3, the document knows 2", sql: `insert into belay_events (run, seq, body) select no, 3,
		cast('{"at":"2030-01-02T03:04:05.000006Z","node":"work","run":"ready","seq":3,"step":1,"type":"node_completed"}' as blob) from belay_runs where id = 'ready'`},
	{check: "I7.document", says: "the document is running, the row waiting", sql: "update belay_runs set status = 'waiting', wake_at = null where id = 'ready'"},
	{check: "I7.event", run: "done", says: "the events end cancelled", sql: ofEvent("done", 4, `"type":"run_completed"`, `"type":"run_cancelled"`)},
	{check: "I8.timers", says: "timer", sql: ofDocument("ready", `"pending":["work"]`, `"pending":["work"],"timers":[{"kind":"task","key":"ready:1:work","at":"2030-01-02T03:04:05.000006Z"}]`)},
	{check: "I8.wake", says: "nothing", sql: "update belay_runs set wake_at = null where id = 'ready'", mended: true},
	{check: "I9.attempts", run: "claimed", says: "6 attempts, the budget is 5", sql: "update belay_runs set claim_attempts = 6 where id = 'claimed'"},
	{check: "I9.abandons", says: "21 abandons, the budget is 20", sql: "update belay_runs set claim_abandons = 21 where id = 'ready'"},
	{check: "I9.counters", says: "-1 attempts", sql: "update belay_runs set claim_attempts = -1 where id = 'ready'"},
	{check: "I10.row", run: "done", says: "wake", sql: "update belay_runs set wake_at = 1 where id = 'done'", mended: true},
	{check: "I10.row", run: "done", says: "token, claimed-at", sql: "update belay_runs set claim_token = 't', claimed_at = 1893553445000006 where id = 'done'", mended: true},
	{check: "I10.document", run: "done", sql: ofDocument("done", `"seq":2`, `"timers":[{"kind":"task","key":"x","at":"2030-01-02T03:04:05.000006Z"}],"seq":2`)},
	{check: "I11.order", says: "updated at", sql: "update belay_runs set updated_at = 1 where id = 'ready'"},
	{check: "I11.order", run: "done", says: "finished at", sql: "update belay_runs set finished_at = 1 where id = 'done'"},
	{check: "I12.key", run: "-", says: "no run", sql: "update belay_start_keys set run = 99", mended: true},
	{check: "I12.key", run: "keyed", says: "another owner", sql: "update belay_start_keys set owner = 'acme'", mended: true},
}

var auditPolicy = backend.AuditPolicy{Now: testClock, MaxClaimAge: 10 * time.Minute, MaxAttempts: 5, MaxAbandons: 20}

// soundStore is the store that the damages are done to.
func soundStore(t *testing.T) *Store {
	t.Helper()
	ctx := context.Background()
	s := openStore(t, Options{Now: func() time.Time { return testClock }})
	publishGraph(t, s)
	insertRun(t, s, "ready")
	keyed := opening("keyed")
	keyed.Key, keyed.Window = "k", time.Hour
	_, err := s.InsertRun(ctx, backend.Tenantless(), keyed)
	must(t, err)
	done := opening("done")
	done.Schedule.Kind, done.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
	in, err := s.InsertRun(ctx, backend.Tenantless(), done)
	must(t, err)
	_, err = s.Commit(ctx, backend.System(), commitOf(*in.Lease, next(done.Document, true)))
	must(t, err)
	claimed := opening("claimed")
	claimed.Schedule.Kind, claimed.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
	_, err = s.InsertRun(ctx, backend.Tenantless(), claimed)
	must(t, err)
	return s
}

func auditAll(t *testing.T, s *Store, p backend.AuditPolicy) (all []backend.Finding) {
	t.Helper()
	for f, err := range s.Audit(context.Background(), p) {
		must(t, err)
		all = append(all, f)
	}
	return all
}

// TestAuditOfASoundStore: finds nothing.
func TestAuditOfASoundStore(t *testing.T) {
	if found := auditAll(t, soundStore(t), auditPolicy); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// TestAuditFindsEachDamage: every check of the catalogue finds what it is for, alone and
// by its name, and what it can mend is sound afterwards.
func TestAuditFindsEachDamage(t *testing.T) {
	planted := make(map[string]bool)
	for i, d := range damages {
		planted[d.check] = true
		t.Run(fmt.Sprintf("%s/%d", d.check, i), func(t *testing.T) { d.test(t) })
	}
	for _, c := range backend.AuditChecks() {
		if !planted[c.ID] {
			t.Errorf("nothing is planted for %s", c.ID)
		}
	}
}

func (d damage) test(t *testing.T) {
	s := soundStore(t)
	if d.file != nil {
		must(t, s.Close())
		d.file(t, s.Path())
		s = openPath(t, s.Path(), Options{Damaged: true})
	} else {
		runSQL(t, s.Path(), "pragma foreign_keys = 0; pragma ignore_check_constraints = 1;"+d.sql)
	}
	found := auditAll(t, s, auditPolicy)
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
	if d.says != "" && !strings.Contains(found[0].Detail, d.says) {
		t.Errorf("%q does not say %q", found[0].Detail, d.says)
	}
	d.repair(t, s, found[0])
}

// repair: what has a repair is mended by it, once; a dry run says so and changes nothing.
func (d damage) repair(t *testing.T, s *Store, f backend.Finding) {
	t.Helper()
	ctx := context.Background()
	if !d.mended {
		if _, err := s.Repair(ctx, f, false); !errors.Is(err, backend.ErrUnsupported) || f.Repair != "" {
			t.Errorf("a repair that is not there: %v, %q", err, f.Repair)
		}
		return
	}
	for _, step := range []struct {
		dryRun, want bool
		left         int
	}{{true, true, 1}, {false, true, 0}, {true, false, 0}, {false, false, 0}} {
		got, err := s.Repair(ctx, f, step.dryRun)
		if err != nil || got != step.want {
			t.Errorf("repair (dry run %v) is %v, %v; it must be %v", step.dryRun, got, err, step.want)
		}
		if left := auditAll(t, s, auditPolicy); len(left) != step.left {
			t.Errorf("after a repair (dry run %v): %+v", step.dryRun, left)
		}
	}
}

// spoilIndex changes an entry of an index that the audit itself does not read by.
func spoilIndex(t *testing.T, path string) {
	t.Helper()
	var page int64
	c, err := dial(fileURI(path, "ro", nil))
	must(t, err)
	must(t, c.read(context.Background(), "select rootpage from sqlite_schema where name = 'belay_graphs_newest'", func(r row) error {
		page = r.int(0)
		return nil
	}))
	must(t, c.close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	// The last bytes of the page are the end of its first entry.
	_, err = f.WriteAt([]byte("zzzz"), page*pageSize-8)
	must(t, errors.Join(err, f.Close()))
}

// TestAuditGoesOnBehindUnreadablePages: pages that cannot be read are findings, of the whole
// audit and of one run's, and what lies on other pages is judged all the same.
func TestAuditGoesOnBehindUnreadablePages(t *testing.T) {
	s := soundStore(t)
	runSQL(t, s.Path(), "update belay_documents set body = x'00' where run = (select no from belay_runs where id = 'ready')")
	must(t, s.Close())
	spoilTable(t, s.Path(), "belay_graphs")
	s = openPath(t, s.Path(), Options{Damaged: true})
	var storage, document, graphs int
	for _, f := range auditAll(t, s, auditPolicy) {
		switch f.Check {
		case "I1.storage":
			storage++
			if strings.Contains(f.Detail, "the check of the graphs ended early") {
				graphs++
			}
		case "I2.document":
			document++
		}
	}
	if storage < 2 || graphs != 1 || document != 1 {
		t.Errorf("%d findings of pages, %d of them of the graphs, and %d of the document", storage, graphs, document)
	}
	must(t, s.Close())
	spoilTable(t, s.Path(), "belay_documents")
	s = openPath(t, s.Path(), Options{Damaged: true})
	p := auditPolicy
	p.Runs = []string{"ready"}
	if found := auditAll(t, s, p); len(found) != 1 || found[0].Check != "I1.storage" || !strings.Contains(found[0].Detail, "run ready") {
		t.Errorf("%+v", found)
	}
}

// spoilTable overwrites the head of a table's first page.
func spoilTable(t *testing.T, path, table string) {
	t.Helper()
	var page int64
	c, err := dial(fileURI(path, "ro", nil))
	must(t, err)
	must(t, c.read(context.Background(), "select rootpage from sqlite_schema where name = ?", func(r row) error {
		page = r.int(0)
		return nil
	}, table))
	must(t, c.close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("no page of a table"), (page-1)*pageSize)
	must(t, errors.Join(err, f.Close()))
}

// TestAuditOfSomeRuns: looks at these alone.
func TestAuditOfSomeRuns(t *testing.T) {
	s := soundStore(t)
	runSQL(t, s.Path(), "pragma ignore_check_constraints = 1; update belay_runs set claim_attempts = -1; update belay_graphs set body = x'00'")
	p := auditPolicy
	p.Runs = []string{"keyed", "absent"}
	if found := auditAll(t, s, p); len(found) != 1 || found[0].Run != "keyed" {
		t.Errorf("%+v", found)
	}
}

// TestAuditGoesOnOverManyRuns: one bad run on each page hides no other.
func TestAuditGoesOnOverManyRuns(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	var ins []backend.Initialization
	for n := range 3*auditPage + 7 {
		ins = append(ins, opening(fmt.Sprintf("run-%03d", n)))
	}
	for _, r := range s.InsertRuns(context.Background(), backend.Tenantless(), ins) {
		must(t, r.Err)
	}
	runSQL(t, s.Path(), "update belay_documents set body = x'00' where run % 50 = 1")
	found := auditAll(t, s, backend.AuditPolicy{})
	if len(found) != 4 {
		t.Errorf("%d findings", len(found))
	}
	for _, f := range found {
		if f.Check != "I2.document" {
			t.Errorf("%+v", f)
		}
	}
	for range s.Audit(context.Background(), backend.AuditPolicy{}) {
		break // a listener may leave
	}
}

// TestRepairLeavesAHealthyRunAlone: a finding that no longer holds changes nothing.
func TestRepairLeavesAHealthyRunAlone(t *testing.T) {
	s := soundStore(t)
	for _, check := range []string{"I8.wake", "I10.row"} {
		for _, id := range []string{"ready", "claimed", "done", "absent"} {
			f := backend.NewFinding(check, "")
			f.Run = id
			before, _ := s.InspectRun(context.Background(), backend.System(), id)
			if done, err := s.Repair(context.Background(), f, false); done || err != nil {
				t.Errorf("%s of %s: %v %v", check, id, done, err)
			}
			after, _ := s.InspectRun(context.Background(), backend.System(), id)
			if diff := cmp.Diff(before, after, cmp.AllowUnexported(backend.Owner{})); diff != "" {
				t.Errorf("%s changed %s:\n%s", check, id, diff)
			}
		}
	}
}
