//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build compiles the service.
func build(t *testing.T, race bool) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "service")
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// replica is one process of the service, and the ones that take its place.
type replica struct {
	binary, db string

	mu   sync.Mutex
	cmd  *exec.Cmd
	url  string
	log  bytes.Buffer
	over chan struct{} // closed when the process has ended and all of its log is read
}

// start starts the process and waits until it says where it serves.
func (r *replica) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(r.binary, "-addr", "127.0.0.1:0", "-db", r.db, "-ttl", ttl.String(), "-poll", poll.String())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving, over := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(over)
		defer close(serving)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			r.mu.Lock()
			fmt.Fprintln(&r.log, lines.Text())
			r.mu.Unlock()
			if _, address, found := strings.Cut(lines.Text(), "serving address="); found {
				serving <- address
			}
		}
	}()
	address, ok := <-serving
	r.mu.Lock()
	r.cmd, r.url, r.over = cmd, "http://"+address, over
	r.mu.Unlock()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if !ok {
		_ = cmd.Wait()
		t.Fatalf("a replica did not begin to serve:\n%s", r.logged())
	}
	r.await(t, http.StatusOK)
}

// await waits until /readyz answers with a status.
func (r *replica) await(t *testing.T, status int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got, _, _ := get(r.address() + "/readyz"); got == status {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("/readyz answers %d, not %d:\n%s", got, status, r.logged())
		}
	}
}

// kill ends the process at once.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.over
	_ = r.cmd.Wait()
}

// terminate ends the process in order.
func (r *replica) terminate(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.over
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, r.logged())
	}
}

func (r *replica) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

func (r *replica) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}
