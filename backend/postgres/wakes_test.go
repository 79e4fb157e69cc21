package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/internal/pgtest"
)

func awaits(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case _, open := <-woken:
		if !open {
			t.Fatalf("the channel was closed before %s", what)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s was not told", what)
	}
}

func subscribe(t *testing.T, s *Store) <-chan struct{} {
	t.Helper()
	woken, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	awaits(t, woken, "the subscription going live")
	return woken
}

// TestWakesReachOtherStores: what one process commits is told in another one, and what
// another schema's store commits is not.
func TestWakesReachOtherStores(t *testing.T) {
	pool := testPool(t)
	quiet := Options{PollInterval: time.Hour}
	here := testStore(t, pool, quiet)
	quiet.Schema = here.opts.Schema
	there := testStore(t, pool, quiet)
	foreign := testStore(t, pool, Options{PollInterval: time.Hour})
	woken, elsewhere := subscribe(t, there), subscribe(t, foreign)
	drain(woken)
	drain(elsewhere)
	here.wake()
	awaits(t, woken, "the wake of another store")
	// A notification that comes after proves that the one before was passed over.
	there.hub.notify()
	foreign.hub.notify()
	awaits(t, elsewhere, "the wake of the schema's own store")
	select {
	case <-elsewhere:
		t.Error("the wake of another schema was told")
	default:
	}
}

func drain(woken <-chan struct{}) {
	for {
		select {
		case <-woken:
		default:
			return
		}
	}
}

// TestALostListenerIsAnnouncedAndReplaced: the loss is a wake, and so is the return; after
// that notifications are heard again.
func TestALostListenerIsAnnouncedAndReplaced(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = "listener of " + t.Name()
	named, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	s := testStore(t, named, Options{PollInterval: 50 * time.Millisecond})
	woken := subscribe(t, s)
	raw := testPool(t)
	const end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1 and query = 'listen belay'"
	for range 2 {
		ended := 0
		for ended == 0 { // the connection that replaces the first one may take a moment
			if err := raw.QueryRow(t.Context(), end, config.ConnConfig.RuntimeParams["application_name"]).Scan(&ended); err != nil {
				t.Fatal(err)
			}
		}
		drain(woken)
		awaits(t, woken, "the loss of the listening connection")
	}
}

// TestPolling: without a listening connection subscribers are told to look.
func TestPolling(t *testing.T) {
	s := testStore(t, testPool(t), Options{PollOnly: true, PollInterval: 5 * time.Millisecond})
	woken := subscribe(t, s)
	for range 3 {
		awaits(t, woken, "a poll")
	}
}

// TestADeafListenerPolls: a connection that takes LISTEN and hears nothing is found out.
func TestADeafListenerPolls(t *testing.T) {
	// The listener is on another database, which is as deaf as a proxy makes it.
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	other := "template1"
	if config.Database == other {
		t.Fatal("the tests' database is template1")
	}
	c := pgtest.DSN(t)
	s := testStore(t, testPool(t), Options{PollInterval: 5 * time.Millisecond, ListenDSN: withDatabase(t, c, other)})
	woken := subscribe(t, s)
	for range 3 {
		awaits(t, woken, "a poll")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range woken { // ends, since it is closed
		continue
	}
	if _, err := s.Subscribe(context.Background()); err == nil {
		t.Error("a closed store takes a subscription")
	}
}

func withDatabase(t *testing.T, dsn, database string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

// TestH36NotificationsAreCoalesced (H36): many commits at once are told by few notifications, none of
// them in a commit: no more than one for each pause between two.
func TestH36NotificationsAreCoalesced(t *testing.T) {
	pool := testPool(t)
	s := testStore(t, pool, Options{})
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 10_000 {
		s.wake()
	}
	// What the store sends last is told after everything before it.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	most := int(time.Since(begun)/notifyPause) + 2
	if _, err := pool.Exec(t.Context(), "select pg_notify($1::text, 'end')", channel); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; {
		got, err := conn.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload == s.opts.Schema {
			n++
		}
		if got.Payload == "end" {
			if n > most {
				t.Errorf("10000 wakes were told by %d notifications, at most %d are due", n, most)
			}
			return
		}
	}
}
