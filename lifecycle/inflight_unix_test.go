//go:build unix

package lifecycle_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Runs that are in the middle of a node cost memory, and their heartbeats time. With -v it tells how much.
func TestTenThousandInFlight(t *testing.T) {
	const (
		runs   = 10_000
		window = 3 * time.Second
	)
	var entered atomic.Int64
	all, leave := make(chan struct{}), make(chan struct{})
	// Every claim is refreshed every third of the TTL: a window sees each of them once.
	e := newEngine(t, newMemory(nil), options{Concurrency: runs, TTL: 3 * window}, act("work", func(ctx context.Context) error {
		if entered.Add(1) == runs {
			close(all)
		}
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}))
	ref := publish(t, &e.Client, single)
	before := memoryInUse()
	startAll(t, e, ref, runs)
	started := memoryInUse()
	shutdown := serve(t, e)
	<-all
	inFlight := memoryInUse()
	perRun := int(inFlight-started) / runs
	cpu := cpuTime(t)
	time.Sleep(window) // what is measured is a stretch of the clock
	share := float64(cpuTime(t)-cpu) / float64(window)
	t.Logf("a run in flight takes %d bytes besides the %d that are stored; heartbeats take %.1f %% of a core", perRun, int(started-before)/runs, 100*share)
	close(leave)
	for e.Stats().Commits < runs {
		time.Sleep(time.Millisecond)
	}
	if err := shutdown(); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.LostClaims != 0 {
		t.Errorf("%+v", s)
	}
	if perRun > inFlightBytes {
		t.Errorf("a run in flight takes %d bytes, want at most %d", perRun, inFlightBytes)
	}
}

// memoryInUse is heap and stacks, without what is free.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
