package pgtest

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// timeout bounds what the package itself asks of a server.
const timeout = 30 * time.Second

// DSN is how to reach the server that tests share: BELAY_TEST_DSN, or the throwaway
// cluster's, started when need be.
func DSN(t T) string {
	t.Helper()
	if dsn := os.Getenv("BELAY_TEST_DSN"); dsn != "" {
		return dsn
	}
	dsn, err := shared()
	if err != nil {
		t.Fatalf("there is no PostgreSQL to test with: %v\nrun `make setup` once, or set BELAY_TEST_DSN", err)
	}
	return dsn
}

// Superuser is how to reach a server on which the test may do everything, such as making roles: the one
// that tests share, or where that lets its user not, a throwaway cluster of the test's own.
func Superuser(t T) string {
	t.Helper()
	dsn := DSN(t)
	pool, err := admin(dsn)
	if err != nil {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var may bool
	if err := pool.QueryRow(ctx, "select rolsuper from pg_roles where rolname = current_user", pgx.QueryExecModeSimpleProtocol).Scan(&may); err != nil {
		t.Fatalf("%v", err)
	}
	if may {
		return dsn
	}
	return Start(t).DSN()
}

// shared joins the cluster once a process.
var shared = sync.OnceValues(join)

// Schema is a name for a schema of the test's own on the shared server. The schema is not
// created, and dropped with the test.
func Schema(t T) string {
	t.Helper()
	return SchemaOn(t, DSN(t))
}

// SchemaOn is Schema, on another server.
func SchemaOn(t T, dsn string) string {
	t.Helper()
	name := "belay_test_" + strings.ToLower(rand.Text()[:16])
	t.Cleanup(func() {
		if err := dropSchema(dsn, name); err != nil {
			t.Errorf("drop the test's schema: %v", err)
		}
	})
	return name
}

func dropSchema(dsn, name string) error {
	pool, err := admin(dsn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err = pool.Exec(ctx, "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade", pgx.QueryExecModeSimpleProtocol)
	return err
}

// admin keeps two connections a process for what the package itself does.
func admin(dsn string) (*pgxpool.Pool, error) {
	admins.Lock()
	defer admins.Unlock()
	if pool := admins.pools[dsn]; pool != nil {
		return pool, nil
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = 2, 0
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	if admins.pools == nil {
		admins.pools = make(map[string]*pgxpool.Pool)
	}
	admins.pools[dsn] = pool
	return pool, nil
}

var admins struct {
	sync.Mutex
	pools map[string]*pgxpool.Pool
}
