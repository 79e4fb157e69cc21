package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
)

// address is a connection string with another database, user or parameters.
func address(t *testing.T, dsn string, change func(u *url.URL, query url.Values)) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	change(u, query)
	u.RawQuery = query.Encode()
	return u.String()
}

// refusalOf tries every way to the schema: each has to be refused for the same problem, with what to do.
func refusalOf(t *testing.T, dsn string, want postgres.Problem, says string) {
	t.Helper()
	opts := postgres.Options{Schema: "refused", RetryTimeout: 50 * time.Millisecond, PollOnly: true}
	ways := map[string]func() error{
		"Open": func() error { return ended(postgres.Open(t.Context(), dsn, opts)) },
		"New": func() error {
			return ended(postgres.New(newPool(t, dsn, pgx.QueryExecModeCacheStatement, 2), opts))
		},
		"Migrate": func() error { _, err := postgres.Migrate(t.Context(), dsn, opts); return err },
	}
	if want != postgres.ProblemReadOnly && want != postgres.ProblemPrivilege { // a look needs no rights to write
		ways["PendingMigrations"] = func() error { _, err := postgres.PendingMigrations(t.Context(), dsn, opts); return err }
	}
	for way, do := range ways {
		err := do()
		refusal, ok := errors.AsType[*postgres.SetupError](err)
		if !ok || refusal.Problem != want || !strings.Contains(refusal.Remedy, says) || !strings.Contains(err.Error(), refusal.Remedy) {
			t.Errorf("%s answers %v; the problem has to be %s, and the remedy to say %q", way, err, want, says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s tells the password: %v", way, err)
		}
	}
}

func ended(s *postgres.Store, err error) error {
	if err == nil {
		_ = s.Close()
	}
	return err
}

// TestEachRefusalOfAConnectionSaysWhatToDo: whatever a server, or a proxy, answers to a connection.
func TestEachRefusalOfAConnectionSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		code    string
		problem postgres.Problem
		says    string
		nature  backend.Nature // of an operation that meets it: nothing was sent, so it is never unknown
	}{
		{"3D000", postgres.ProblemDatabase, "create it", backend.Permanent},
		{"28P01", postgres.ProblemLogin, "password", backend.Permanent},
		{"28000", postgres.ProblemLogin, "pg_hba.conf", backend.Permanent},
		{"42501", postgres.ProblemLogin, "grant the role connect", backend.Permanent},
		{"53300", postgres.ProblemConnections, "max_connections", backend.Transient},
		{"57P03", postgres.ProblemStarting, "wait", backend.Transient},
		{"08P01", postgres.ProblemProxy, "see its log", backend.Transient},
	} {
		t.Run(c.code, func(t *testing.T) {
			dsn := refusing(t, c.code)
			refusalOf(t, dsn, c.problem, c.says)
			if _, err := pgx.Connect(t.Context(), dsn); postgres.Nature(err) != c.nature {
				t.Errorf("%v is %v, it has to be %v", err, postgres.Nature(err), c.nature)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		refusalOf(t, "postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable", postgres.ProblemConnect, "see that the server runs")
	})
}

// refusing is how to reach something that answers every connection with an error.
func refusing(t *testing.T, code string) string {
	t.Helper()
	answer, err := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "injected"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := message(client, false); err == nil {
				_, _ = client.Write(answer)
			}
			_ = client.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return "postgres://u:hunter2@" + listener.Addr().String() + "/d?sslmode=disable"
}

// TestServersRefuse: what real servers answer to a database that is not there, a wrong password, a role
// without connections, and a migration of a standby.
func TestServersRefuse(t *testing.T) {
	cluster := pgtest.Start(t)
	ctx := t.Context()
	owner, err := pgx.Connect(ctx, cluster.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(context.Background())
	rules := "local all locked scram-sha-256\nlocal all all trust\n"
	if err := os.WriteFile(cluster.File("pg_hba.conf"), []byte(rules), 0); err != nil { // it is there, and stays its owner's
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "create database closed"); err != nil {
		t.Fatal(err)
	}
	prepare := "create role locked login password 'right'; create role crowded login connection limit 0; create role weak login;" +
		"revoke connect on database closed from public; select pg_reload_conf()"
	if _, err := owner.Exec(ctx, prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	as := func(user, password string, more ...string) string {
		return address(t, cluster.DSN(), func(u *url.URL, query url.Values) {
			query.Set("user", user)
			if password != "" {
				query.Set("password", password)
			}
			for _, change := range more {
				name, value, _ := strings.Cut(change, "=")
				if name == "database" {
					u.Path = "/" + value
				} else {
					query.Set(name, value)
				}
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // the rules are read again
		conn, err := pgx.Connect(ctx, as("locked", "hunter2"))
		if err != nil {
			break
		}
		_ = conn.Close(ctx)
		if time.Now().After(deadline) {
			t.Fatal("the server does not take its new rules")
		}
	}
	refusalOf(t, as("belay", "", "database=nowhere"), postgres.ProblemDatabase, "create it")
	refusalOf(t, as("locked", "hunter2"), postgres.ProblemLogin, "password")
	refusalOf(t, as("nobody", ""), postgres.ProblemLogin, "user")
	refusalOf(t, as("crowded", ""), postgres.ProblemConnections, "limit of the role")
	refusalOf(t, as("weak", "", "database=closed"), postgres.ProblemLogin, "grant the role connect")
	refusalOf(t, as("belay", "", "default_transaction_read_only=on"), postgres.ProblemReadOnly, "target_session_attrs")
	refusalOf(t, as("weak", "", "database=postgres"), postgres.ProblemPrivilege, "grant")
}

// TestH20SettingUpOutlastsAFailure (H20): a failure at any statement of a migration, or of the look at a schema that
// is up to date, is not told when repeating cures it; and there is one schema, whole.
func TestH20SettingUpOutlastsAFailure(t *testing.T) {
	p, dsn := newProxy(t)
	faults := maps.Clone(faults)
	faults["starting up"] = fault{code: "57P03"}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			opts := postgres.Options{Schema: pgtest.Schema(t), PollOnly: true}
			fired := true
			for f.after = 0; fired; f.after++ {
				// Each step fails once, of the first migration as of the look at what is there.
				if f.after%2 == 0 {
					opts.Schema = pgtest.Schema(t)
				}
				p.arm(f)
				err := ended(postgres.Open(t.Context(), dsn, opts))
				if fired = p.disarm(); err != nil {
					t.Fatalf("at statement %d: %v", f.after+1, err)
				}
			}
			if f.after < 3 {
				t.Errorf("it came about %d times", f.after-1)
			}
			opts.VerifyOnly = true
			s, err := postgres.Open(t.Context(), dsn, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for f, err := range s.Audit(t.Context(), backend.AuditPolicy{}) {
				t.Errorf("the audit finds %+v, %v", f, err)
			}
		})
	}
}

// TestASchemaOfSomethingElse: tables of something else in belay's schema are neither touched nor judged;
// where one has a name that belay needs, that is told, and nothing is changed.
func TestASchemaOfSomethingElse(t *testing.T) {
	a := direct(t)
	exec := func(text string) {
		t.Helper()
		if _, err := a.raw.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	const others = `create table %[1]s.orders (id int primary key, note text default 'x'); create index on %[1]s.orders (note);
insert into %[1]s.orders values (1); create view %[1]s.view as select 1 as one`
	schema := pgtest.Schema(t)
	exec("create schema " + schema)
	exec(fmt.Sprintf(others, schema))
	s := newStore(t, a, postgres.Options{Schema: schema})
	if _, err := s.InsertRun(t.Context(), backend.Tenantless(), draft("run")); err != nil {
		t.Fatal(err)
	}
	if found := auditAll(t, s); len(found) > 0 {
		t.Errorf("beside tables of something else: %+v", found)
	}
	exec("alter table " + schema + ".runs drop constraint shape")
	if found := auditAll(t, s); len(found) != 1 || found[0].Check != "I1.schema" || !strings.Contains(found[0].Detail, "runs constraint shape") {
		t.Errorf("beside them a constraint is missing: %+v", found)
	}
	var n int
	if err := a.raw.QueryRow(t.Context(), "select count(*) from "+schema+".orders").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows are left of something else's, %v", n, err)
	}

	for name, columns := range map[string]string{"migrations": "id int, migration text", "events": "id int", "turns": "owner text"} {
		t.Run(name, func(t *testing.T) {
			schema := pgtest.Schema(t)
			exec("create schema " + schema + "; create table " + schema + "." + name + " (" + columns + ")")
			err := ended(postgres.New(a.pool(), postgres.Options{Schema: schema}))
			refusal, ok := errors.AsType[*postgres.SetupError](err)
			if !ok || refusal.Problem != postgres.ProblemForeign || !strings.Contains(err.Error(), name) || !strings.Contains(refusal.Remedy, "Options.Schema") {
				t.Errorf("it was answered %v", err)
			}
		})
	}
}

// TestTheAuditLeavesANewerSchemaToNewerPrograms: while a fleet rolls, this release works on the next one's schema.
func TestTheAuditLeavesANewerSchemaToNewerPrograms(t *testing.T) {
	a := direct(t)
	s := soundStore(t, a)
	for _, text := range []string{
		"alter table " + nameOf(s, "runs") + " add column next_one text",
		"insert into " + nameOf(s, "migrations") + " values (1000, '1000_next.sql', 'x', 1, now())",
	} {
		if _, err := a.raw.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if found := auditAll(t, s); len(found) > 0 {
		t.Errorf("of a newer schema: %+v", found)
	}
	if _, err := a.raw.Exec(t.Context(), "delete from "+nameOf(s, "migrations")+" where number = 1000"); err != nil {
		t.Fatal(err)
	}
	if found := auditAll(t, s); len(found) != 1 || found[0].Check != "I1.schema" || !strings.Contains(found[0].Detail, "next_one") {
		t.Errorf("of a changed schema: %+v", found)
	}
}
