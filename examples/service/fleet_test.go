//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/run"
)

const (
	orders = 500
	atOnce = 48
	killAt = 150 // orders that have come to their ends
	rollAt = 300
)

// TestOrdersSurviveAKillAndARollingRestart: three replicas serve one database, one of them is killed and one is
// rolled. Every order comes to the end that is right for it, and everything is done once.
func TestOrdersSurviveAKillAndARollingRestart(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		binary := build(t, raced)
		cluster := pgtest.Start(t)
		f := newFleet(t, binary, cluster.DSN())
		f.trade(t)
		f.losesItsDatabase(t, cluster)
		f.close(t)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		binary := build(t, false) // the race detector makes SQLite itself ten times as slow, and finds nothing in it
		f := newFleet(t, binary, "sqlite:"+filepath.Join(t.TempDir(), "data", "orders.db"))
		f.trade(t)
		f.close(t)
	})
}

// newFleet starts three replicas side by side, on a database that is empty.
func newFleet(t *testing.T, binary, db string) fleet {
	t.Helper()
	f := fleet{{binary: binary, db: db}, {binary: binary, db: db}, {binary: binary, db: db}}
	var starting sync.WaitGroup
	for _, r := range f {
		starting.Go(func() { r.start(t) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// trade lets all orders come to their ends while replicas come and go, and checks every one.
func (f fleet) trade(t *testing.T) {
	t.Helper()
	customers := make([]*customer, orders)
	next, ended := make(chan *customer, orders), make(chan *customer, orders)
	for i := range customers {
		customers[i] = &customer{n: i, fate: fates[i%len(fates)]}
		next <- customers[i]
	}
	close(next)
	began := time.Now()
	for range atOnce {
		go func() {
			for c := range next {
				if err := c.live(f); err != nil {
					t.Error(err)
				}
				ended <- c
			}
		}()
	}
	for n := 1; n <= orders; n++ {
		<-ended
		switch n {
		case killAt:
			f[0].kill(t)
			f[0].start(t)
		case rollAt:
			f[1].terminate(t)
			f[1].start(t)
		}
	}
	t.Logf("%d orders in %v", orders, time.Since(began).Round(time.Millisecond))
	f.quiet(t)

	all := make(map[string][]string)
	for _, c := range customers {
		if err := c.settled(f); err != nil {
			t.Error(err)
		}
		all[c.tenant()] = append(all[c.tenant()], c.id)
	}
	for tenant, ids := range all {
		f.lists(t, tenant, "", ids)
	}
	var cancelled []string
	for _, c := range customers {
		if c.status == "cancelled" && c.tenant() == "tenant-0" {
			cancelled = append(cancelled, c.id)
		}
	}
	f.lists(t, "tenant-0", "cancelled", cancelled)
	f.lists(t, "tenant-9", "", nil)
	for _, path := range []string{"/orders/" + customers[0].id, "/orders/01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		if status, body, _, err := f.send(call{method: "GET", path: path, tenant: "tenant-1"}); err != nil || status != http.StatusNotFound {
			t.Errorf("another tenant reads %s: %d %s %v", path, status, body, err)
		}
	}
	for _, r := range f {
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, _, err := get(r.address() + path); err != nil || status != http.StatusOK {
				t.Errorf("GET %s: %d %v", path, status, err)
			}
		}
	}
}

// lists reads all pages of a tenant's orders, which must be these.
func (f fleet) lists(t *testing.T, tenant, status string, want []string) {
	t.Helper()
	q := url.Values{"limit": {"37"}}
	if status != "" {
		q.Set("status", status)
	}
	var got []string
	for {
		code, body, _, err := f.send(call{method: "GET", path: "/orders?" + q.Encode(), tenant: tenant})
		var page listView
		if err != nil || code != http.StatusOK || json.Unmarshal(body, &page) != nil {
			t.Fatalf("GET /orders: %d %s %v", code, body, err)
		}
		for _, o := range page.Orders {
			got = append(got, o.ID)
			if o.Item == "" || o.Amount == 0 {
				t.Errorf("a list holds an order without its row: %+v", o)
			}
		}
		before, err := page.Before.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if len(before) == 0 {
			break
		}
		q.Set("before", string(before))
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s has %d orders in its list (status %q), not %d", tenant, len(got), status, len(want))
	}
}

// open opens the database that the fleet serves.
func (f fleet) open(t *testing.T) database {
	t.Helper()
	db, err := openDatabase(t.Context(), f[0].db)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// quiet waits until no run is unfinished, those that withdrawals started included.
func (f fleet) quiet(t *testing.T) {
	t.Helper()
	db := f.open(t)
	defer db.close()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		page, err := db.store().ListRuns(t.Context(), backend.System(), backend.Query{
			Statuses: []run.Status{run.Running, run.Waiting, run.Failed}, Limit: 10,
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(page.Runs) == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("runs are unfinished, or failed: %+v", page.Runs)
		}
	}
}

// losesItsDatabase: without the database the service lives, is not ready, and says when to come again;
// with it, it goes on.
func (f fleet) losesItsDatabase(t *testing.T, cluster *pgtest.Cluster) {
	t.Helper()
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	f[0].await(t, http.StatusServiceUnavailable)
	if status, _, err := get(f[0].address() + "/healthz"); err != nil || status != http.StatusOK {
		t.Errorf("GET /healthz without the database: %d %v", status, err)
	}
	for _, c := range []call{
		{method: "GET", path: "/orders", tenant: "tenant-0"},
		{"POST", "/orders", "tenant-0", "late", `{"item": "late", "amount": 5}`},
	} {
		status, header, body, err := c.at(f[0].address())
		if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Errorf("%s %s without the database: %d %s %v", c.method, c.path, status, body, err)
		}
	}
	if err := cluster.Up(); err != nil {
		t.Fatal(err)
	}
	for _, r := range f {
		r.await(t, http.StatusOK)
	}
	c := &customer{n: orders, fate: small}
	if err := c.live(f); err != nil {
		t.Error(err)
	}
}

// close ends all replicas and looks into the database: nothing is lost, nothing is left over.
func (f fleet) close(t *testing.T) {
	t.Helper()
	for _, r := range f {
		r.terminate(t)
		if log := r.logged(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "level=ERROR") {
			t.Errorf("a replica logged:\n%s", log)
		}
	}
	db := f.open(t)
	defer db.close()
	for finding, err := range db.store().Features().Audit.Audit(t.Context(), backend.AuditPolicy{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("the audit found %+v", finding)
	}
	count := func(statement string) (n int) {
		err := db.query(context.WithoutCancel(t.Context()), statement, nil, func(scan func(...any) error) error { return scan(&n) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	repeated := count("select count(*) from effects where calls > 1")
	t.Logf("%d effects, %d of them asked for more than once", count("select count(*) from effects"), repeated)
	if repeated == 0 {
		t.Error("nothing was ever repeated: the test proves nothing about it")
	}
	if n := count("select count(*) from orders"); n < orders || n > orders+2 { // and those of losesItsDatabase
		t.Errorf("there are %d orders", n)
	}
	if n := count("select count(*) from effects group by order_id, kind order by 1 desc limit 1"); n != 1 {
		t.Errorf("something was done %d times", n)
	}
}
