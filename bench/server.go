package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/internal/pgtest"
)

// serverSettings are the throwaway server's. What is committed is on the disk, as in production;
// the rest is what any server of this size is given.
var serverSettings = []string{
	"fsync = on", "synchronous_commit = on", "full_page_writes = on",
	"shared_buffers = 512MB", "max_wal_size = 4GB", "checkpoint_timeout = 15min",
	"max_connections = 300", "autovacuum_naptime = 1min",
}

// server is the one PostgreSQL of a run. It is started by the first row that needs it.
type server struct {
	once    sync.Once
	err     error
	cluster *pgtest.Cluster
	host    host
	version string
	pid     int // of the server's first process
}

// host stands in for a test where the throwaway server wants one.
type host struct{ cleanups []func() }

// fatalError carries a Fatalf to whoever recovers it.
type fatalError struct{ err error }

func (h *host) Helper() {}

func (h *host) Fatalf(format string, args ...any) { panic(fatalError{fmt.Errorf(format, args...)}) }

func (h *host) Errorf(format string, args ...any) { panic(fatalError{fmt.Errorf(format, args...)}) }

func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// dsn starts the server when need be, and says how to reach it.
func (s *server) dsn(ctx context.Context) (string, error) {
	s.once.Do(func() {
		defer func() {
			if r := recover(); r != nil {
				fatal, ok := r.(fatalError)
				if !ok {
					panic(r)
				}
				s.err = fatal.err
			}
		}()
		s.cluster = pgtest.Start(&s.host, serverSettings...)
		var conn *pgx.Conn
		if conn, s.err = pgx.Connect(ctx, s.cluster.DSN()); s.err != nil {
			return
		}
		defer conn.Close(ctx)
		var fsync, synchronous string
		s.err = conn.QueryRow(ctx, "select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), "+
			"split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer").
			Scan(&s.version, &fsync, &synchronous, &s.pid)
		if s.err == nil && (fsync != "on" || synchronous != "on") {
			s.err = fmt.Errorf("the server runs with fsync %s and synchronous_commit %s", fsync, synchronous)
		}
	})
	if s.err != nil {
		return "", s.err
	}
	return s.cluster.DSN(), nil
}

// pool connects with so many connections.
func (s *server) pool(ctx context.Context, connections int) (*pgxpool.Pool, error) {
	dsn, err := s.dsn(ctx)
	if err != nil {
		return nil, err
	}
	return pgxpool.New(ctx, withConnections(dsn, connections))
}

func withConnections(dsn string, connections int) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	q := u.Query()
	q.Set("pool_max_conns", strconv.Itoa(connections))
	u.RawQuery = q.Encode()
	return u.String()
}

// settle makes the server as quiet as it was before the last contestant: statistics are current
// and nothing is left to be written.
func settle(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "analyze"); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "checkpoint")
	return err
}

// drop deletes a contestant's schema with everything in it.
func drop(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	_, err := pool.Exec(ctx, "drop schema if exists "+pgx.Identifier{schema}.Sanitize()+" cascade")
	return err
}

// processorTime is what the server's processes have used of all processors. It is 0 where that is not
// told, or before the server was started. Connections must not end meanwhile.
func (s *server) processorTime() time.Duration {
	if s.pid == 0 {
		return 0
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.pid, s.pid))
	if err != nil {
		return 0
	}
	total := time.Duration(0)
	for _, pid := range append(strings.Fields(string(children)), strconv.Itoa(s.pid)) {
		total += processTime(pid)
	}
	return total
}

// processTime is what one process has used.
func processTime(pid string) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	// The name, in parentheses, may hold anything; user and system time are the 12th and 13th field after it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	const tick = 10 * time.Millisecond // the kernel's unit for programs, on every platform it runs on
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}

// stop ends the server.
func (s *server) stop() {
	for i := len(s.host.cleanups) - 1; i >= 0; i-- {
		s.host.cleanups[i]()
	}
}
