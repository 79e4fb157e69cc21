package sqlite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// The benchmarks commit steps of claimed runs, with a document of about 1 KB and a row of two events
// each, under FULL: through the store, and by the driver alone with the same statements on
// the same tables, prepared, encoded before, fifty a transaction or one.

const (
	benchRuns  = 200
	benchGroup = 50
)

type bench struct {
	s      *Store
	leases []claim.Lease
	docs   []*run.Document
}

func newBench(b *testing.B) *bench {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	s, err := Open(ctx, dir+"/belay.db", Options{SharedDirectory: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	publishGraph(b, s)
	f := &bench{s: s}
	for n := range benchRuns {
		f.docs = append(f.docs, insertRun(b, s, fmt.Sprintf("run-%04d", n)))
		f.leases = append(f.leases, claimRun(b, s, f.docs[n].ID))
	}
	return f
}

// step is the next commit of a run.
func (f *bench) step(n int) backend.Commit {
	p := next(f.docs[n], false)
	f.docs[n] = p.Document
	return commitOf(f.leases[n], p)
}

func (f *bench) check(b *testing.B, commits int) {
	b.Helper()
	total := 0
	for _, d := range f.docs {
		stored, err := f.s.FetchRun(context.Background(), backend.System(), d.ID)
		if err != nil || stored.Seq != d.Seq {
			b.Fatalf("run %s is not where it was committed to: %v", d.ID, err)
		}
		total += int(d.Seq) - 1
	}
	if total != commits {
		b.Fatalf("%d commits are stored, %d were made", total, commits)
	}
}

// callers commits n steps from many goroutines at once.
func (f *bench) callers(b *testing.B, n int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for i := range benchRuns {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := f.s.Commit(context.Background(), backend.System(), f.step(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// batches commits n steps, fifty a call.
func (f *bench) batches(b *testing.B, n int) {
	b.Helper()
	for done := 0; done < n; {
		var group []backend.Commit
		for len(group) < benchGroup && done < n {
			group = append(group, f.step(done%benchRuns))
			done++
		}
		for _, r := range f.s.Commits(context.Background(), backend.System(), group) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// singles commits n steps, one after the other.
func (f *bench) singles(b *testing.B, n int) {
	b.Helper()
	for i := range n {
		if _, err := f.s.Commit(context.Background(), backend.System(), f.step(i%benchRuns)); err != nil {
			b.Fatal(err)
		}
	}
}

// raw does the same writes with the driver alone, group a transaction.
func (f *bench) raw(b *testing.B, n, group int) (elapsed time.Duration) {
	b.Helper()
	ctx := context.Background()
	c, err := f.s.dialWriter(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	var all []*commit
	for i := range n {
		k, err := f.s.newCommit(context.Background(), backend.System(), f.step(i%benchRuns))
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, k)
	}
	began := time.Now()
	for len(all) > 0 {
		if _, err := c.exec(ctx, stBegin); err != nil {
			b.Fatal(err)
		}
		for _, k := range all[:min(group, len(all))] {
			d := k.c.Document
			var number int64
			err := c.query(ctx, stCommitRetain, func(r row) error { number = r.int(0); return nil },
				d.ID, nil, k.c.Expected, string(k.c.Token), string(k.c.CheckpointID), d.Graph.ID, d.Graph.Hash,
				d.StartedAt.UnixMicro(), string(d.Status), d.UpdatedAt.UnixMicro(), d.Seq, string(k.c.Type), testClock.UnixMicro())
			if err != nil || number == 0 {
				b.Fatalf("%d %v", number, err)
			}
			if _, err := c.exec(ctx, stDocumentUpdate, number, k.document); err != nil {
				b.Fatal(err)
			}
			e := k.events[0]
			if _, err := c.exec(ctx, stEventInsert, number, e.Seq, string(e.CheckpointID), e.Body, nil); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := c.exec(ctx, stCommit); err != nil {
			b.Fatal(err)
		}
		all = all[min(group, len(all)):]
	}
	return time.Since(began)
}

func BenchmarkCommitCallers(b *testing.B) {
	f := newBench(b)
	b.ResetTimer()
	f.callers(b, b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	f.check(b, b.N)
}

func BenchmarkCommitBatches(b *testing.B) {
	f := newBench(b)
	b.ResetTimer()
	f.batches(b, b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	f.check(b, b.N)
}

func BenchmarkCommitSingles(b *testing.B) {
	f := newBench(b)
	b.ResetTimer()
	f.singles(b, b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	f.check(b, b.N)
}

func BenchmarkRawGrouped(b *testing.B) {
	f := newBench(b)
	elapsed := f.raw(b, b.N, benchGroup)
	b.ReportMetric(float64(b.N)/elapsed.Seconds(), "commits/s")
	f.check(b, b.N)
}

func BenchmarkRawSingles(b *testing.B) {
	f := newBench(b)
	elapsed := f.raw(b, b.N, 1)
	b.ReportMetric(float64(b.N)/elapsed.Seconds(), "commits/s")
	f.check(b, b.N)
}

// BenchmarkRatio alternates the store and the raw driver in one run, and prints how much
// of the driver's rate the store reaches.
func BenchmarkRatio(b *testing.B) {
	const rounds, commits = 3, 10_000
	f := newBench(b)
	var raw, callers, batches, single, rawSingle time.Duration
	b.ResetTimer()
	for range b.N {
		for range rounds {
			raw += f.raw(b, commits, benchGroup)
			began := time.Now()
			f.callers(b, commits)
			callers += time.Since(began)
			began = time.Now()
			f.batches(b, commits)
			batches += time.Since(began)
			rawSingle += f.raw(b, commits/20, 1)
			began = time.Now()
			f.singles(b, commits/20)
			single += time.Since(began)
		}
	}
	b.StopTimer()
	b.ReportMetric(raw.Seconds()/callers.Seconds(), "grouped/raw")
	b.ReportMetric(raw.Seconds()/batches.Seconds(), "batched/raw")
	b.ReportMetric(rawSingle.Seconds()/single.Seconds(), "single/raw")
	b.ReportMetric(float64(b.N*rounds*commits)/callers.Seconds(), "grouped-commits/s")
	b.ReportMetric(float64(b.N*rounds*commits)/raw.Seconds(), "raw-commits/s")
}

func BenchmarkClaim(b *testing.B) {
	s := newBench(b).s
	for n := 0; n < b.N; n += benchGroup {
		b.StopTimer()
		var ins []backend.Initialization
		for i := range benchGroup {
			ins = append(ins, opening(fmt.Sprintf("due-%d-%d", n, i)))
		}
		s.InsertRuns(context.Background(), backend.Tenantless(), ins)
		b.StartTimer()
		batch, err := s.ClaimDueDocuments(context.Background(), claim.Policy{
			Now: testClock.Add(time.Second), TTL: 24 * time.Hour, Limit: benchGroup, MaxAttempts: 5,
		})
		if err != nil || len(batch.Leases) != benchGroup {
			b.Fatalf("%d leases, %v", len(batch.Leases), err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}
