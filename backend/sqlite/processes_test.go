package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// TestSeveralProcesses: three processes drive the runs of one file to their ends: each
// commit happens once, nobody sees a busy error, and the file is sound.
func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	const workers, runs = 3, 60
	ctx := context.Background()
	f := newFixture(t)
	e, err := newEngine(f.store, shifted{}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := e.Publish(ctx, workGraph)
	if err != nil {
		t.Fatal(err)
	}
	for range runs {
		if _, err := e.Start(ctx, ref, nil, lifecycle.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	outs := make([]bytes.Buffer, workers)
	cmds := make([]*exec.Cmd, workers)
	for i := range cmds {
		cmds[i] = exec.Command(os.Args[0])
		cmds[i].Env = append(os.Environ(), childRole+"=worker", childFile+"="+f.path, childOffset+"=0")
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	commits := make(map[string]int)
	busy := 0
	for i := range cmds {
		if err := cmds[i].Wait(); err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, outs[i].String())
		}
		lines := strings.Split(strings.TrimSpace(outs[i].String()), "\n")
		if len(lines) > 1 {
			busy++
		}
		for _, line := range lines {
			commits[line]++
		}
	}
	if busy < 2 {
		t.Logf("only %d of %d processes had anything to do", busy, workers)
	}
	page, err := f.store.ListRuns(ctx, backend.System(), backend.Query{Limit: 1000})
	if err != nil || len(page.Runs) != runs {
		t.Fatalf("%d runs, %v", len(page.Runs), err)
	}
	for _, r := range page.Runs {
		if r.Status != run.Done {
			t.Errorf("run %s is %s", r.Run, r.Status)
		}
		for seq := int64(2); seq <= r.Seq; seq++ {
			status := run.Running
			if seq == r.Seq {
				status = run.Done
			}
			if n := commits[fmt.Sprintf("commit %s %d %s", r.Run, seq, status)]; n != 1 {
				t.Errorf("commit %d of run %s happened %d times", seq, r.Run, n)
			}
		}
	}
	if lines, err := f.audit(ctx); err != nil || len(lines) > 0 {
		t.Errorf("%v %q", err, lines)
	}
}

// TestWhatOneHandleWritesWakesTheOthers: within one process, through any store on the
// file, however it is named.
func TestWhatOneHandleWritesWakesTheOthers(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	link := f.path + ".link"
	if err := os.Symlink(f.path, link); err != nil {
		t.Fatal(err)
	}
	other, err := sqlite.Open(ctx, link, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	wakes, err := other.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-wakes // it is live
	e, err := newEngine(f.store, shifted{}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := e.Publish(ctx, rareGraph)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(ctx, ref, nil, lifecycle.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	<-wakes
}
