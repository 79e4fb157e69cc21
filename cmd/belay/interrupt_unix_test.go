//go:build unix

package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestASecondInterruptEndsWhatNodesHaveStarted: the command of a node ends, and the run is released, due
// at once for whoever goes on with it.
func TestASecondInterruptEndsWhatNodesHaveStarted(t *testing.T) {
	binary, data := build(t), t.TempDir()
	file, hold, input := stepsInput(t)
	cmd := command(t, binary, data, "run", "testdata/graphs/steps.yaml", "--id", "stopped", "--input", input)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	waitUntil(t, "the node held begins", func() bool { return slices.Contains(executed(t, file), "held") })
	raw, err := os.ReadFile(hold + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	began := time.Now()
	interrupt()
	readUntil(t, stderr, &said, "interrupt again")
	interrupt()
	if _, err := said.ReadFrom(stderr); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if alive(pid) {
		t.Errorf("process %d of the node is still there", pid)
	}
	if took := time.Since(began); took >= shutdownTimeout {
		t.Errorf("it took %v", took)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitInfrastructure || !strings.Contains(said.String(), "go on with: belay run --resume stopped") {
		t.Errorf("exit %d\n%s", code, said.String())
	}
	out, _, _ := start(t, binary, data, "runs", "list", "--json")
	if !strings.Contains(out, `"state":"ready"`) || !strings.Contains(out, `"attempts":0`) {
		t.Errorf("the run is not due at once:\n%s", out)
	}
}

// TestASecondSignalEndsAWorkersNodes: as with one run, and the worker ends well.
func TestASecondSignalEndsAWorkersNodes(t *testing.T) {
	binary, data := build(t), t.TempDir()
	file, _, input := stepsInput(t)
	first := command(t, binary, data, "run", "testdata/graphs/steps.yaml", "--id", "served", "--input", input)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func(times int) func() bool {
		return func() bool { return strings.Count(strings.Join(executed(t, file), " "), "held") == times }
	}
	waitUntil(t, "the node held begins", begun(1))
	signalTwice(t, first.Process)
	_ = first.Wait()
	worker := command(t, binary, data, "worker", "--shutdown-timeout", "1h")
	var log bytes.Buffer
	worker.Stderr = &log
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(30*time.Second, func() { _ = worker.Process.Kill() })
	defer watchdog.Stop()
	waitUntil(t, "the worker goes on with it", begun(2))
	signalTwice(t, worker.Process)
	if err := worker.Wait(); err != nil || !strings.Contains(log.String(), "stopped after") {
		t.Errorf("%v\n%s", err, log.String())
	}
	out, _, _ := start(t, binary, data, "runs", "list", "--json")
	if !strings.Contains(out, `"state":"ready"`) || !strings.Contains(out, `"attempts":0`) {
		t.Errorf("the run is not due at once:\n%s", out)
	}
}

// signalTwice sends two signals that the system does not take for one.
func signalTwice(t *testing.T, p *os.Process) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAResultThatCannotBePrintedIsTold: a full disk is no silent failure.
func TestAResultThatCannotBePrintedIsTold(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Log("there is no /dev/full here")
		return
	}
	defer full.Close()
	binary, data := build(t), t.TempDir()
	for _, args := range [][]string{
		{"run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`, "--json"},
		{"run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`},
		{"run", "testdata/graphs/none.yaml", "--json"},
		{"runs", "list", "--json"},
		{"runs", "list"},
	} {
		cmd := command(t, binary, data, args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitInfrastructure && args[1] != "testdata/graphs/none.yaml" || !strings.Contains(said.String(), "belay: ") {
			t.Errorf("%q: exit %d, %q", args, code, said.String())
		}
	}
}
