package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	code "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// auditPage is how many rows an audit reads in one snapshot, so that it never keeps the
// log from being copied into the file for long.
const auditPage = 64

// Audit implements backend.Auditor (feature X9), on a connection of its own.
func (s *Store) Audit(ctx context.Context, p backend.AuditPolicy) iter.Seq2[backend.Finding, error] {
	return func(yield func(backend.Finding, error) bool) {
		if s.isClosed() {
			yield(backend.Finding{}, backend.ErrClosed)
			return
		}
		p.Now = s.clock.or(claim.Instant(p.Now))
		a := &audit{s: s, p: p, yield: yield, opener: backend.Opener{Sealer: s.opts.Sealer}}
		if err := a.run(ctx); err != nil && !errors.Is(err, errStop) {
			yield(backend.Finding{}, fail("audit", err, false))
		}
	}
}

// audit is one Audit at work; errStop says that nobody listens any more.
type audit struct {
	s      *Store
	p      backend.AuditPolicy
	yield  func(backend.Finding, error) bool
	c      *conn
	opener backend.Opener
}

func (a *audit) found(f backend.Finding) error {
	if !a.yield(f, nil) {
		return errStop
	}
	return nil
}

func (a *audit) run(ctx context.Context) error {
	var err error
	if a.c, err = a.s.dialReader(ctx); err != nil {
		return err
	}
	// It only read, and what is wrong has been said: SQLite says it again at the end.
	defer func() { _ = a.c.close() }()
	if len(a.p.Runs) > 0 {
		for _, id := range a.p.Runs {
			if err := a.past("run "+id, a.runs(ctx, id)); err != nil {
				return err
			}
		}
		return a.sealed()
	}
	for _, part := range []struct {
		name  string
		check func(context.Context) error
	}{
		{"the pages", a.storage},
		{"the schema", a.schema},
		{"the rows of lost runs", a.orphans},
		{"the graphs", a.graphs},
		{"the start keys", a.keys},
		{"the runs", func(ctx context.Context) error { return a.runs(ctx, nil) }},
	} {
		if err := a.past(part.name, part.check(ctx)); err != nil {
			return err
		}
	}
	return a.sealed()
}

// sealed tells what could not be opened, once for all runs.
func (a *audit) sealed() error {
	for _, f := range a.opener.Findings() {
		if err := a.found(f); err != nil {
			return err
		}
	}
	return nil
}

// past makes a finding of pages that cannot be read, which end the check of one part and
// not that of the others.
func (a *audit) past(part string, err error) error {
	if primary(err) != code.SQLITE_CORRUPT {
		return err
	}
	return a.found(backend.NewFinding("I1.storage", fmt.Sprintf("the check of %s ended early: %v", part, err)))
}

// storage is I1 as SQLite judges it. Its constraints are left to the checks that name them.
func (a *audit) storage(ctx context.Context) error {
	if err := a.c.run(ctx, "pragma ignore_check_constraints = 1"); err != nil {
		return err
	}
	return a.c.read(ctx, "pragma integrity_check", func(r row) error {
		if r.text(0) == "ok" {
			return nil
		}
		return a.found(backend.NewFinding("I1.storage", r.text(0)))
	})
}

func (a *audit) schema(ctx context.Context) error {
	name, err := damagedSchema(ctx, a.c)
	if err == nil && name != "" {
		return a.found(backend.NewFinding("I1.schema", "it differs at: "+name))
	}
	return err
}

func (a *audit) orphans(ctx context.Context) error {
	return a.c.query(ctx, stAuditOrphans, func(r row) error {
		return a.found(backend.NewFinding("I1.orphan", fmt.Sprintf("%d %s of the run with number %d", r.int(2), r.text(0), r.int(1))))
	})
}

// graphs is I3.digest.
func (a *audit) graphs(ctx context.Context) error {
	for after, more := int64(0), true; more; {
		more = false
		err := a.c.query(ctx, stAuditGraphs, func(r row) error {
			after, more = r.int(0), true
			ref := graph.Ref{ID: r.text(2), Hash: r.text(3)}
			if err := backend.VerifyGraph(ref, r.blob(4)); err != nil {
				f := backend.NewFinding("I3.digest", err.Error())
				f.Graph, f.Tenant = ref, r.text(1)
				return a.found(f)
			}
			return nil
		}, after, int64(auditPage))
		if err != nil {
			return err
		}
	}
	return nil
}

// keys is I12.
func (a *audit) keys(ctx context.Context) error {
	return a.c.query(ctx, stAuditKeys, func(r row) error {
		detail := "the key points at no run"
		if r.text(3) != "" {
			detail = "the key points at a run of another owner or graph"
		}
		f := backend.NewFinding("I12.key", detail)
		f.Tenant, f.Graph, f.Key, f.Run = r.text(0), graph.Ref{ID: r.text(1)}, r.text(2), r.text(3)
		return a.found(f)
	}, nil, nil, nil)
}

// runs is I2 to I11, of one run or (nil) of every one.
func (a *audit) runs(ctx context.Context, id any) error {
	for after := int64(math.MinInt64); ; {
		findings, last, err := a.page(ctx, after, id)
		if err != nil {
			return err
		}
		for _, f := range findings {
			if err := a.found(f); err != nil {
				return err
			}
		}
		if last == after || id != nil {
			return nil
		}
		after = last
	}
}

// page judges the next few runs, all in one snapshot.
func (a *audit) page(ctx context.Context, after int64, id any) (findings []backend.Finding, last int64, err error) {
	if _, err := a.c.exec(ctx, stBeginRead); err != nil {
		return nil, 0, err
	}
	defer func() {
		_, end := a.c.exec(context.WithoutCancel(ctx), stRollback)
		err = errors.Join(err, end)
	}()
	last = after
	err = a.c.query(ctx, stAuditRuns, func(r row) error {
		last = r.int(0)
		var reading error
		stored := storedForAudit(r)
		stored.Opener = &a.opener
		stored.Events = func(each func(backend.StoredEvent) bool) { reading = a.events(ctx, r.int(0), each) }
		findings = append(findings, backend.AuditRun(stored, a.p)...)
		return reading
	}, after, int64(auditPage), id)
	return findings, last, err
}

func (a *audit) events(ctx context.Context, number int64, each func(backend.StoredEvent) bool) error {
	return a.c.query(ctx, stAuditEvents, func(r row) error {
		if !each(backend.StoredEvent{Seq: r.int(0), CheckpointID: checkpoint.ID(r.text(1)), Body: r.blob(2)}) {
			return errStop
		}
		return nil
	}, number)
}

func storedForAudit(r row) backend.StoredRun {
	one := scanRun(r)
	return backend.StoredRun{
		Run: one.id, Owner: one.owner, Graph: graph.Ref{ID: one.graphID, Hash: one.graphHash}, Status: one.status,
		StartedAt: r.instant(14), UpdatedAt: r.instant(15), FinishedAt: r.instant(16),
		State: one.state, Seq: one.seq, CheckpointID: checkpoint.ID(r.text(17)),
		Document: r.blob(18), GraphStored: r[19] != nil,
	}
}

// Repair implements backend.Auditor.
func (s *Store) Repair(ctx context.Context, f backend.Finding, dryRun bool) (repaired bool, err error) {
	var mend func(c *conn) (bool, error)
	switch f.Check {
	case "I8.wake":
		mend = func(c *conn) (bool, error) {
			return s.mendState(c, f.Run, dryRun, func(r *storedRun) (claim.State, bool) {
				idle := r.state
				idle.Attempts, idle.Abandons = 0, 0
				next := r.state
				next.Wake = s.clock.read()
				return next, r.status == run.Running && idle == claim.State{}
			})
		}
	case "I10.row":
		mend = func(c *conn) (bool, error) {
			return s.mendState(c, f.Run, dryRun, func(r *storedRun) (claim.State, bool) {
				return claim.State{}, r.status.Terminal() && r.state != claim.State{}
			})
		}
	case "I12.key":
		mend = func(c *conn) (bool, error) { return mendKey(c, f, dryRun) }
	default:
		return false, fmt.Errorf("%w: a repair of %s: %s", backend.ErrUnsupported, f.Check, f.Remedy)
	}
	if dryRun {
		err = s.readers.use(ctx, func(c *conn) error {
			repaired, err = mend(c)
			return err
		})
		return repaired, fail("repair", err, false)
	}
	err = s.writer.do(ctx, &operation{name: "repair", wakes: true, run: func(c *conn, _ bool) error {
		repaired, err = mend(c)
		return err
	}})
	return repaired && err == nil, err
}

func (s *Store) mendState(c *conn, id string, dryRun bool, better func(*storedRun) (claim.State, bool)) (bool, error) {
	r, err := findRun(c, id)
	if err != nil || r == nil {
		return false, err
	}
	next, broken := better(r)
	if !broken || dryRun {
		return broken, nil
	}
	return true, storeState(context.Background(), c, r.number, next)
}

func mendKey(c *conn, f backend.Finding, dryRun bool) (broken bool, err error) {
	err = c.query(context.Background(), stAuditKeys, func(row) error { broken = true; return nil }, f.Tenant, f.Graph.ID, f.Key)
	if err != nil || !broken || dryRun {
		return broken, err
	}
	_, err = c.exec(context.Background(), stKeyFree, f.Tenant, f.Graph.ID, f.Key)
	return true, err
}
