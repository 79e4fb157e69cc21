package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
)

// get answers the status and the body of a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// A worker, a process of its own, serves what this one starts, says that it is ready, and on
// SIGTERM releases the run whose node it is in the middle of.
func TestWorkerServesRunsAndSIGTERMHandsThemOnUnharmed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there is no SIGTERM to send to a single process")
		return
	}
	db := "sqlite:" + filepath.Join(t.TempDir(), "runs.db")
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{SharedDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	engine, err := belay.New(belay.Config{Backend: store, Nodes: std.Register(node.NewRegistry())})
	if err != nil {
		t.Fatal(err)
	}
	started := func(path string, input any) *belay.Run {
		doc, err := belay.ReadGraph(path)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := engine.Publish(t.Context(), doc)
		if err != nil {
			t.Fatal(err)
		}
		r, err := engine.Start(t.Context(), ref, input, belay.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	cmd := command(t, build(t), t.TempDir(), "worker", "--db", db, "--poll", "20ms", "--shutdown-timeout", "100ms", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	address := ""
	for lines.Scan() && !strings.Contains(lines.Text(), "serving") {
		said.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`http://[^/]+`).FindString(lines.Text()); m != "" {
			address = m
		}
	}
	if address == "" {
		t.Fatalf("it does not say where health is answered:\n%s", said.String())
	}

	r := started("testdata/graphs/greet.yaml", map[string]string{"name": "Ada"})
	done, err := engine.Await(t.Context(), r.ID)
	if err != nil || done.Status != run.Done || string(done.Output) != `{"text":"Hello, Ada!"}` {
		t.Errorf("the run: %+v, %v", done, err)
	}
	if code, body := get(t, address+"/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz answers %d %q", code, body)
	}
	if code, body := get(t, address+"/readyz"); code != http.StatusOK || !strings.HasPrefix(body, "ok") {
		t.Errorf("/readyz answers %d %q", code, body)
	}

	held := started("testdata/graphs/busy.yaml", nil)
	for {
		info, err := engine.Inspect(t.Context(), held.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !info.ClaimedAt.IsZero() {
			break
		}
		time.Sleep(10 * time.Millisecond) // what another process claims announces itself to nobody
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "stopped after") {
		t.Errorf("it ended with %v:\n%s", err, said.String())
	}
	info, err := engine.Inspect(t.Context(), held.ID)
	if err != nil || info.Status != run.Running || info.Attempts != 0 || !info.ClaimedAt.IsZero() || info.Wake.IsZero() || info.Wake.After(time.Now()) {
		t.Errorf("the run that was in the middle of a node: %+v, %v", info, err)
	}
}

func TestReadyOnlyWhileItServesAndTheDatabaseAnswers(t *testing.T) {
	store := &refusing{Store: memory.New(memory.Options{})}
	engine, err := belay.New(belay.Config{Backend: store, Nodes: node.NewRegistry(), PollInterval: 10 * time.Millisecond, Logger: (&terminal{err: io.Discard}).logger()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(healthHandler(engine))
	defer server.Close()
	ready := func() int { code, _ := get(t, server.URL+"/readyz"); return code }
	until := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ready() != want; {
			if time.Now().After(deadline) {
				t.Fatalf("/readyz does not come to answer %d", want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	if code := ready(); code != http.StatusServiceUnavailable {
		t.Errorf("before it serves: %d", code)
	}
	over := make(chan error, 1)
	go func() { over <- engine.Run(t.Context()) }()
	until(http.StatusOK)
	store.away.Store(true)
	until(http.StatusServiceUnavailable)
	if code, _ := get(t, server.URL+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while the database is away: %d", code)
	}
	if err := engine.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestWorkerRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--db", "memory:"}, exitUsage, "nothing that somebody else could start"},
		{[]string{"--concurrency", "0"}, exitUsage, "must be above 0"},
		{[]string{"now"}, exitUsage, "unknown command or argument"},
		{[]string{"--graph", ""}, exitUsage, "Graphs cannot be claimed by"},
		{[]string{"--listen", "nowhere:99999"}, exitInfrastructure, "health cannot be answered"},
	} {
		data := t.TempDir()
		var out, errs bytes.Buffer
		term := &terminal{in: strings.NewReader(""), out: &out, err: &errs, now: time.Now, getenv: func(name string) string {
			return map[string]string{"XDG_DATA_HOME": data}[name]
		}}
		if code := execute(context.Background(), append([]string{"worker"}, c.args...), term); code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("worker %q ends with %d:\n%s", c.args, code, errs.String())
		}
	}
}

// refusing is a store that can be away.
type refusing struct {
	backend.Store
	away atomic.Bool
}

func (r *refusing) Features() backend.Features { return backend.Features{} }

func (r *refusing) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	if r.away.Load() {
		return claim.Batch{}, &backend.InfrastructureError{Op: "claim", Nature: backend.Transient, Err: errors.New("away")}
	}
	return r.Store.ClaimDue(ctx, p)
}
