package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"
)

// env is what contestants share in one run of the bench.
type env struct {
	quick  bool
	rounds int
	server *server
	dir    string // of files, emptied at the end
	out    io.Writer
	began  time.Time

	profiles string // folder of CPU profiles; empty: none
	row      string // the row being measured

	mu    sync.Mutex
	names int
}

// size is how much is done: the full size, or the quick one.
func (e *env) size(full, quick int) int {
	if e.quick {
		return quick
	}
	return full
}

func (e *env) progress(format string, args ...any) {
	if e.out != nil {
		fmt.Fprintf(e.out, "%6.1fs  %s  %s\n", time.Since(e.began).Seconds(), e.row, fmt.Sprintf(format, args...))
	}
}

// name is a name that nothing else in this run has.
func (e *env) name(prefix string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names++
	return prefix + "_" + strconv.Itoa(e.names)
}

// file is a path in a folder of its own.
func (e *env) file(name string) (string, error) {
	dir := filepath.Join(e.dir, e.name("files"))
	return filepath.Join(dir, name), os.Mkdir(dir, 0o700)
}

// cost is what a measured stretch took: by the clock, and of processors, here and in the database
// server.
type cost struct{ elapsed, client, server time.Duration }

// per gives the figures of n pieces of work.
func (c cost) per(n int, unit string) figures {
	f := figures{
		unit + "s/s":        float64(n) / c.elapsed.Seconds(),
		"client µs/" + unit: float64(c.client.Microseconds()) / float64(n),
	}
	if c.server > 0 {
		f["server µs/"+unit] = float64(c.server.Microseconds()) / float64(n)
	}
	return f
}

// measured runs work as the stretch that counts. Whatever was left behind by what came before is
// collected first.
func (e *env) measured(work func() error) (cost, error) {
	runtime.GC()
	client, server := processorTime(), e.server.processorTime()
	began := time.Now()
	err := work()
	elapsed := time.Since(began)
	return cost{elapsed: elapsed, client: processorTime() - client, server: e.server.processorTime() - server}, err
}

// profiled is measured for belay's side, of which a profile may be asked.
func (e *env) profiled(work func() error) (cost, error) {
	if e.profiles == "" {
		return e.measured(work)
	}
	f, err := os.Create(filepath.Join(e.profiles, e.name(e.row)+".pprof"))
	if err != nil {
		return cost{}, err
	}
	defer f.Close()
	return e.measured(func() error {
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return work()
	})
}

// calibrate tells how many milliseconds one core takes to hash 1 MB, the best of a few tries.
func calibrate() float64 {
	data := make([]byte, 1_000_000)
	best := time.Hour
	for range 20 {
		began := time.Now()
		sha256.Sum256(data)
		best = min(best, time.Since(began))
	}
	return float64(best.Nanoseconds()) / 1e6
}

// text is n bytes as payloads are: letters that compress to about two thirds, the same every time.
func text(n int) string {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	words := []string{"customer ", "delivery ", "invoice ", "pending "}
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		for range 12 {
			b = append(b, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[r.IntN(64)])
		}
	}
	return string(b[:n])
}

// seen counts how often each piece of work was executed.
type seen struct {
	mu     sync.Mutex
	counts []int32
}

func newSeen(n int) *seen { return &seen{counts: make([]int32, n)} }

func (s *seen) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= 0 && n < len(s.counts) {
		s.counts[n]++
	}
}

// each checks that every piece was executed exactly so often.
func (s *seen) each(times int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, c := range s.counts {
		if c != times {
			return wrong("number %d was executed %d times, not %d", n, c, times)
		}
	}
	return nil
}

// parallel runs work for 0 to n-1 on so many goroutines, and answers the first error.
func parallel(ctx context.Context, workers, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	next := 0
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := take(); i < n && ctx.Err() == nil; i = take() {
				if err := work(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// latencies gives the figures of durations.
func latencies(ds []time.Duration) figures {
	slices.Sort(ds)
	at := func(share float64) float64 {
		return float64(ds[min(len(ds)-1, int(share*float64(len(ds))))].Nanoseconds()) / 1e6
	}
	return figures{"p50 ms": at(0.5), "p99 ms": at(0.99)}
}

// quiet is a logger that says nothing.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stretch times a part of what is measured.
func stretch(work func() error) (time.Duration, error) {
	began := time.Now()
	err := work()
	return time.Since(began), err
}
