//go:build unix

package rolling

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that has to happen. A busy machine may be slow.
const patience = 2 * time.Minute

// process is a place in the fleet, and the processes that fill it one after the other.
type process struct {
	slot   int
	common []string
	ledger *ledger
	// handedBack counts the runs that the fleet's processes gave back.
	handedBack *atomic.Int64

	mu     sync.Mutex
	cmd    *exec.Cmd
	binary string
	extra  []string
	url    string
	over   chan struct{} // closed when the process has ended and its log is read
	log    bytes.Buffer
	errors []string
}

// start starts a binary in this place, and waits until it serves.
func (p *process) start(t *testing.T, binary string, extra ...string) {
	t.Helper()
	args := append(append([]string{"-ledger", p.ledger.of(p.slot)}, p.common...), extra...)
	cmd := exec.Command(binary, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	serving, over := make(chan string, 1), make(chan struct{})
	go p.read(stderr, serving, over)
	address, ok := <-serving
	if !ok {
		_ = cmd.Wait()
		t.Fatalf("process %d does not serve:\n%s", p.slot, p.logged())
	}
	p.mu.Lock()
	p.cmd, p.binary, p.extra, p.url, p.over = cmd, binary, extra, "http://"+address, over
	p.mu.Unlock()
	eventually(t, fmt.Sprintf("process %d to be ready", p.slot), func() bool { return p.call("GET", "/readyz", nil, nil) == nil })
}

// read reads the log of a process to its end.
func (p *process) read(stderr io.Reader, serving chan<- string, over chan<- struct{}) {
	defer close(over)
	defer close(serving)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		p.mu.Lock()
		fmt.Fprintln(&p.log, line)
		if strings.Contains(line, " ERROR ") {
			p.errors = append(p.errors, line)
		}
		p.mu.Unlock()
		if strings.Contains(line, "it is handed back") {
			p.handedBack.Add(1)
		}
		if _, rest, found := strings.Cut(line, "serving address="); found {
			serving <- strings.Fields(rest)[0]
		}
	}
}

// terminate ends the process in order.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.over
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("process %d after SIGTERM: %v\n%s", p.slot, err, p.logged())
	}
}

// kill ends the process at once.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.over
	_ = p.cmd.Wait()
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// client has no limit of its own on connections to one process.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// call sends a request, and decodes the answer into out if that is not nil.
func (p *process) call(method, path string, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	p.mu.Lock()
	url := p.url
	p.mu.Unlock()
	request, err := http.NewRequest(method, url+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status + ": " + strings.TrimSpace(string(answer)))
	}
	if out != nil {
		return json.Unmarshal(answer, out)
	}
	return nil
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(25 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
