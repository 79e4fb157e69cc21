package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bouncer starts a PgBouncer that pools transactions, in front of the server that tests
// share, and answers how to reach it. It ends with the test, and with the test's process.
func Bouncer(t T) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("there is no pgbouncer to test with: run `make setup` once")
		}
	}
	server, err := pgx.ParseConfig(DSN(t))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var user account
	if os.Geteuid() == 0 {
		if user, err = unprivileged(); err != nil {
			t.Fatalf("%v", err)
		}
	}
	dir, err := os.MkdirTemp(folder(), "belay-bouncer-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	target := fmt.Sprintf("host=%s port=%d user=%s", server.Host, server.Port, server.User)
	if server.Password != "" {
		target += " password=" + server.Password
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	text := "[databases]\n* = " + target + "\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = " + dir + `
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 60
server_login_retry = 0.1
ignore_startup_parameters = extra_float_digits
logfile = ` + filepath.Join(dir, "log") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if user.name != "" {
		if err := os.Chown(dir, int(user.uid), int(user.gid)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	// The shell ends it when its input does, as with the process that holds the other end.
	cmd := exec.Command("sh", "-c", `"$0" -q "$1" & read -r end; kill -9 $!; wait`, program, config)
	cmd.Dir = dir
	user.apply(cmd)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait()
	})
	query := url.Values{"host": {dir}, "port": {"6432"}, "user": {server.User}}
	dsn := (&url.URL{Scheme: "postgres", Path: "/" + server.Database, RawQuery: query.Encode()}).String()
	// That its socket is there says neither that it listens nor that it reaches the server.
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		err := answers(dsn)
		if err == nil {
			return dsn
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("pgbouncer does not answer: %v\n%s", err, log)
		}
	}
}

// answers asks a server for something.
func answers(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(ctx))
}
