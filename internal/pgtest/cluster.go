package pgtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// role is the superuser of every cluster made here.
const role = "belay"

// settings make a cluster quick and small. What is committed survives the end of the
// server, as tests that kill it require, though not a loss of power.
const settings = `
listen_addresses = ''
unix_socket_permissions = 0777
max_connections = 500
fsync = off
full_page_writes = off
shared_buffers = 128MB
max_wal_size = 1GB
autovacuum_naptime = 10s
log_min_messages = warning
log_statement = none
restart_after_crash = on
`

// Cluster is a PostgreSQL server of a test's own, for tests that stop or kill it.
type Cluster struct {
	bin  string // folder of the server's programs
	dir  string // everything of the cluster is below
	user account
}

// account is the system user that a server runs as; the zero account is this process's.
type account struct {
	name     string
	uid, gid uint32
}

// Start starts a cluster that ends with the test. Lines of extra are appended to its
// postgresql.conf.
func Start(t T, extra ...string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp(folder(), "belay-pg-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	c, err := newCluster(filepath.Join(dir, "server"))
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatalf("there is no PostgreSQL to test with: %v\nrun `make setup` once", err)
	}
	if err := watch(c, dir, true); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		_ = c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "stop")
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("%v", err)
		}
	})
	if err := c.create(extra); err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// DSN is how to reach the cluster.
func (c *Cluster) DSN() string {
	return (&url.URL{Scheme: "postgres", Path: "/postgres", RawQuery: url.Values{"host": {c.dir}, "user": {role}}.Encode()}).String()
}

// Socket is the path of the cluster's socket.
func (c *Cluster) Socket() string { return filepath.Join(c.dir, ".s.PGSQL.5432") }

// File is the path of a file below the server's folder of data, for tests that damage it.
func (c *Cluster) File(name string) string { return filepath.Join(c.data(), name) }

// Up starts the cluster again after Kill.
func (c *Cluster) Up() error {
	return c.run("pg_ctl", "-D", c.data(), "-l", filepath.Join(c.dir, "log"), "-w", "-t", "60", "start")
}

// Kill ends every process of the server at once, as a crash would.
func (c *Cluster) Kill() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	pids := []int{pid}
	for _, field := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	return c.gone(pids)
}

func (c *Cluster) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// newCluster finds what a cluster in dir needs, and makes the folder.
func newCluster(dir string) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, dir: dir}
	if os.Geteuid() == 0 {
		if c.user, err = unprivileged(); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	if c.user.name == "" {
		return c, nil
	}
	return c, os.Chown(dir, int(c.user.uid), int(c.user.gid))
}

func (c *Cluster) create(extra []string) error {
	if err := c.run("initdb", "-D", c.data(), "-U", role, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"); err != nil {
		return err
	}
	text := settings + "unix_socket_directories = '" + c.dir + "'\n" + strings.Join(extra, "\n") + "\n"
	f, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return c.Up()
}

// run runs one of the server's programs as the cluster's user.
func (c *Cluster) run(program string, args ...string) error {
	log, err := os.CreateTemp(c.dir, "out-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log // a file, for which nobody waits
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	c.user.apply(cmd)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		server, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		return fmt.Errorf("%s: %w: %s\n%s", program, err, text, server)
	}
	return nil
}

// folder is where clusters are made: short, since the path of a socket must be.
func folder() string {
	if dir := os.TempDir(); len(dir) < 40 {
		return dir
	}
	return "/tmp"
}

// binaries is the folder with the server's programs.
func binaries() (string, error) {
	candidates := []string{os.Getenv("BELAY_TEST_PG_BIN")}
	if candidates[0] == "" {
		candidates = nil
		for _, program := range []string{"initdb", "postgres"} {
			if path, err := exec.LookPath(program); err == nil {
				if path, err = filepath.EvalSymlinks(path); err == nil {
					candidates = append(candidates, filepath.Dir(path))
				}
			}
		}
		installed, err := filepath.Glob("/usr/lib/postgresql/*/bin")
		if err != nil {
			return "", err
		}
		slices.SortFunc(installed, func(a, b string) int { return major(b) - major(a) })
		candidates = append(candidates, installed...)
	}
	for _, dir := range candidates {
		complete := true
		for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
			if _, err := exec.LookPath(filepath.Join(dir, program)); err != nil {
				complete = false
			}
		}
		if complete {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no folder has initdb, pg_ctl and postgres: looked into %q", candidates)
}

func major(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}

// unprivileged finds a system user for a server, which refuses to run as root.
func unprivileged() (account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return account{}, errors.New("a server does not run as root, and there is neither a user postgres nor a user nobody")
}
