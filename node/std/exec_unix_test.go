//go:build unix

package std_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// leave connects, starts a process that holds this one's outputs (in the same process
// group, or in a session of its own), and exits when it is told to.
func leave(args []string) int {
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return 97
	}
	child := exec.Command(os.Args[0], "hold", args[0], "deaf", "1")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: args[1] == "session"}
	if err := child.Start(); err != nil {
		return 96
	}
	_, _ = io.WriteString(conn, "leads")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return 94
	}
	fmt.Print("left")
	return 0
}

// watch accepts a connection of each of so many processes; they are all there when
// ready is closed.
type watch struct {
	address string
	conns   chan net.Conn
}

func newWatch(t *testing.T) *watch {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{address: l.Addr().String(), conns: make(chan net.Conn, 10)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.conns <- conn
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return w
}

// hello waits until a process has connected and begun, and gives what it said.
func (w *watch) hello(t *testing.T) (net.Conn, string) {
	t.Helper()
	select {
	case conn := <-w.conns:
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		said := make([]byte, len("hello"))
		if _, err := io.ReadFull(conn, said); err != nil {
			t.Fatalf("a process did not begin: %v", err)
		}
		return conn, string(said)
	case <-time.After(30 * time.Second):
		t.Fatal("a process did not connect")
		return nil, ""
	}
}

// last is what a process said until it was gone.
func last(t *testing.T, conn net.Conn) string {
	t.Helper()
	said, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the process is still there: %v", err)
	}
	return string(said)
}

func TestExecDeadlineEndsTheWholeProcessGroup(t *testing.T) {
	for manner, said := range map[string]string{"deaf": "", "polite": "goodbye", "plain": ""} {
		t.Run(manner, func(t *testing.T) {
			w := newWatch(t)
			s := place(t, "exec", argv(t, "", "hold", w.address, manner, "3"), nil, "stdout")
			ctx, cancel := context.WithCancelCause(t.Context())
			results := make(chan run.Result)
			go func() {
				call := s.call
				r, err := s.Run(ctx, &call)
				if err != nil {
					t.Error(err)
				}
				results <- r
			}()
			var family []net.Conn
			for range 3 {
				conn, _ := w.hello(t)
				family = append(family, conn)
			}
			cancel(fmt.Errorf("timeout: %w", context.DeadlineExceeded))
			r := <-results
			if f, _ := r.Failure(); r.Kind() != run.ResultRetry || f.Code != run.CodeTimeout {
				t.Errorf("result %v, %+v", r.Kind(), f)
			}
			for _, conn := range family {
				if got := last(t, conn); got != said {
					t.Errorf("a process said %q, want %q", got, said)
				}
			}
		})
	}
}

func TestExecCutShortIsNoFailure(t *testing.T) {
	w := newWatch(t)
	s := place(t, "exec", argv(t, "", "hold", w.address, "plain", "1"), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	errLost := errors.New("claim lost")
	errs := make(chan error)
	go func() {
		call := s.call
		_, err := s.Run(ctx, &call)
		errs <- err
	}()
	conn, _ := w.hello(t)
	cancel(errLost)
	var short *node.CutShortError
	if err := <-errs; !errors.As(err, &short) || !errors.Is(err, errLost) {
		t.Errorf("error %v, want *CutShortError", err)
	}
	last(t, conn)
}

// leaving runs a command that leaves a process behind, and gives that one's connection.
func leaving(t *testing.T, where string) net.Conn {
	t.Helper()
	w := newWatch(t)
	s := place(t, "exec", argv(t, "", "leave", w.address, where), nil, "stdout", "exit_code")
	updates := make(chan map[string]value.Value)
	go func() {
		call := s.call
		r, err := s.Run(t.Context(), &call)
		if err != nil {
			t.Error(err)
		}
		updates <- r.Update()
	}()
	var left, leader net.Conn
	for range 2 {
		switch conn, said := w.hello(t); said {
		case "leads":
			leader = conn
		default:
			left = conn
		}
	}
	if _, err := io.WriteString(leader, "x"); err != nil {
		t.Fatal(err)
	}
	if got := <-updates; string(got["stdout"]) != `"left"` || string(got["exit_code"]) != "0" {
		t.Errorf("update %v", got)
	}
	return left
}

func TestExecEndsWhatACommandLeavesInItsGroup(t *testing.T) {
	last(t, leaving(t, "group"))
}

func TestExecDoesNotWaitForWhoLeftTheGroup(t *testing.T) {
	left := leaving(t, "session")
	_ = left.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := left.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who left is gone: %v", err)
	}
}

func TestExecEndedFromOutside(t *testing.T) {
	f := place(t, "exec", `{"shell":"kill -9 $$"}`, nil).failed(t, run.ResultRetry)
	if !strings.Contains(f.Message, "ended from outside (signal: killed)") || !strings.Contains(string(f.Details), `"exit_code":-1`) {
		t.Errorf("failure %+v", f)
	}
}

func TestExecShell(t *testing.T) {
	config := `{"shell":"echo \"$# $1 $2 ${WHO}\" | tr a-z A-Z; echo '${n}'","argv":["${list}"],"env":{"WHO":"it is ${n}"}}`
	got := place(t, "exec", config, map[string]string{"n": "7", "list": `["a b","; rm -rf /"]`}, "stdout").completed(t)
	if want := "2 A B ; RM -RF / IT IS 7\n${n}\n"; decoded(t, got["stdout"]) != want {
		t.Errorf("stdout %s, want %q", got["stdout"], want)
	}
	f := place(t, "exec", `{"shell":"exit 4"}`, nil).failed(t, run.ResultRetry)
	if f.Message != "the command ended with exit code 4" {
		t.Errorf("failure %+v", f)
	}
}
