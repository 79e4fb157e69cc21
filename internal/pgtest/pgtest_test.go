package pgtest_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/internal/pgtest"
)

func TestTheSharedServerAnswers(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var encoding string
	if err := conn.QueryRow(t.Context(), "show server_encoding").Scan(&encoding); err != nil || encoding != "UTF8" {
		t.Errorf("the server's encoding is %q, %v", encoding, err)
	}
}

// TestAKilledClusterComesBack: what was committed is there after a crash.
func TestAKilledClusterComesBack(t *testing.T) {
	c := pgtest.Start(t)
	ask := func(text string) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), c.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		results, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		last := results[len(results)-1].Rows
		if n, err = strconv.Atoi(string(last[0][0])); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ask("create table kept as select 7 as n; select n from kept")
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Up(); err != nil {
		t.Fatal(err)
	}
	if n := ask("select n from kept"); n != 7 {
		t.Errorf("after the crash n is %d", n)
	}
}
