package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

var _ backend.Auditor = (*Store)(nil)

// auditPage is how many rows an audit reads in one snapshot, so that it never keeps dead
// rows from being cleaned up for long.
const auditPage = 64

// errStop says that nobody listens to an audit any more.
var errStop = errors.New("stop")

// Audit implements backend.Auditor (feature X9). The pages of tables and indexes are left to
// the server's own tools (data checksums, amcheck), except that what it cannot read is a finding.
func (s *Store) Audit(ctx context.Context, p backend.AuditPolicy) iter.Seq2[backend.Finding, error] {
	return func(yield func(backend.Finding, error) bool) {
		a := &audit{s: s, p: p, yield: yield, opener: backend.Opener{Sealer: s.opts.Sealer}}
		if err := a.run(ctx); err != nil && !errors.Is(err, errStop) {
			yield(backend.Finding{}, fail("audit", err))
		}
	}
}

// audit is one Audit at work.
type audit struct {
	s      *Store
	p      backend.AuditPolicy
	yield  func(backend.Finding, error) bool
	opener backend.Opener
}

func (a *audit) found(f backend.Finding) error {
	if !a.yield(f, nil) {
		return errStop
	}
	return nil
}

func (a *audit) run(ctx context.Context) error {
	if a.s.isClosed() {
		return backend.ErrClosed
	}
	if a.p.Now = claim.Instant(a.p.Now); a.p.Now.IsZero() {
		var err error
		if a.p.Now, err = a.s.Now(ctx); err != nil {
			return err
		}
	}
	if len(a.p.Runs) > 0 {
		if err := a.past("the runs", a.runs(ctx)); err != nil {
			return err
		}
		return a.sealed()
	}
	for _, part := range []struct {
		name  string
		check func(context.Context) error
	}{
		{"the schema", a.schema},
		{"the rows of lost runs", a.orphans},
		{"the graphs", a.graphs},
		{"the start keys", a.keys},
		{"the runs", a.runs},
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

// past makes a finding of pages that the server cannot read, which end the check of one
// part and not that of the others.
func (a *audit) past(part string, err error) error {
	switch code(err) {
	case codeDataCorrupted, codeIndexCorrupted:
		return a.found(backend.NewFinding("I1.storage", fmt.Sprintf("the check of %s ended early: %v", part, err)))
	}
	return err
}

// schema is I1.schema. What else lives in the schema is not belay's to judge, nor is what a newer
// release has made of the tables, which this one works with (see Options.VerifyOnly).
func (a *audit) schema(ctx context.Context) error {
	newer, err := a.s.isNewer(ctx)
	if err != nil || newer {
		return err
	}
	got, err := a.s.describe(ctx, a.s.pool, tablesOf(golden))
	if err != nil {
		return err
	}
	if line := difference(golden, got); line != "" {
		return a.found(backend.NewFinding("I1.schema", "it differs at: "+line))
	}
	return nil
}

// isNewer reports whether a newer release has migrated the schema.
func (s *Store) isNewer(ctx context.Context) (newer bool, err error) {
	all, err := loadMigrations()
	if err != nil {
		return false, err
	}
	rows, err := s.pool.Query(ctx, inSchema(`select exists (select from :"schema".migrations where number > $1::bigint)`, s.opts.Schema), all[len(all)-1].number)
	if err == nil {
		newer, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
	switch code(err) {
	case codeUndefinedTable, codeUndefinedColumn: // which the check of the schema finds
		return false, nil
	}
	if err != nil {
		return false, &failure{err}
	}
	return newer, nil
}

// difference is the first line that is in only one of the two.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, pair := range [][2][]string{{a, b}, {b, a}} {
		for _, line := range pair[0] {
			if !slices.Contains(pair[1], line) {
				return line
			}
		}
	}
	return ""
}

func (a *audit) orphans(ctx context.Context) error {
	return a.s.run(ctx, a.s.pool, stAuditOrphans, func(r pgx.Rows) error {
		var kind, id string
		var n int64
		if err := scan(r, &kind, &id, &n); err != nil {
			return err
		}
		f := backend.NewFinding("I1.orphan", fmt.Sprintf("%d %s of run %s, which is not there so", n, kind, id))
		if kind == "no start" {
			f = backend.NewFinding("I1.orphan", fmt.Sprintf("run %s is in no list: its row of starts is not there", id))
		}
		return a.found(f)
	})
}

// graphs is I3.digest.
func (a *audit) graphs(ctx context.Context) error {
	var owner string
	var ref graph.Ref
	for more := true; more; {
		more = false
		err := a.s.run(ctx, a.s.pool, stAuditGraphs, func(r pgx.Rows) error {
			var body []byte
			if err := scan(r, &owner, &ref.ID, &ref.Hash, &body); err != nil {
				return err
			}
			more = true
			if err := backend.VerifyGraph(ref, body); err != nil {
				f := backend.NewFinding("I3.digest", err.Error())
				f.Graph, f.Tenant = ref, owner
				return a.found(f)
			}
			return nil
		}, owner, ref.ID, ref.Hash, int64(auditPage))
		if err != nil {
			return err
		}
	}
	return nil
}

// keys is I12.
func (a *audit) keys(ctx context.Context) error {
	return a.s.run(ctx, a.s.pool, stAuditKeys, func(r pgx.Rows) error {
		f := backend.NewFinding("I12.key", "the key points at no run")
		var id *string
		if err := scan(r, &f.Tenant, &f.Graph.ID, &f.Key, &id); err != nil {
			return err
		}
		if id != nil {
			f.Run, f.Detail = *id, "the key points at a run of another owner or graph"
		}
		return a.found(f)
	})
}

// runs is I2 to I11.
func (a *audit) runs(ctx context.Context) error {
	for after := ""; ; {
		var findings []backend.Finding
		last := after
		err := pgx.BeginTxFunc(ctx, a.s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			page, err := a.page(ctx, tx, after)
			if err != nil {
				return err
			}
			events, err := a.events(ctx, tx, page)
			if err != nil {
				return err
			}
			defer events.rows.Close()
			for i := range page {
				page[i].Events, page[i].Opener = events.of(page[i].Run), &a.opener
				findings = append(findings, backend.AuditRun(page[i], a.p)...)
				last = page[i].Run
			}
			return events.err()
		})
		if err != nil {
			return &failure{err}
		}
		for _, f := range findings {
			if err := a.found(f); err != nil {
				return err
			}
		}
		if last == after {
			return nil
		}
		after = last
	}
}

func (a *audit) page(ctx context.Context, tx pgx.Tx, after string) (page []backend.StoredRun, err error) {
	err = a.s.run(ctx, tx, stAuditRuns, func(r pgx.Rows) error {
		var one backend.StoredRun
		var owner, status, last string
		var token, reason *string
		var attempts, abandons int32
		var wake, claimed, poisoned, finished *time.Time
		err := scan(r, &one.Run, &owner, &one.Graph.ID, &one.Graph.Hash, &status, &wake, &token, &claimed, &attempts, &abandons,
			&poisoned, &reason, &one.Seq, &last, &one.StartedAt, &one.UpdatedAt, &finished, &one.Document, &one.GraphStored)
		one.Owner, one.Status, one.CheckpointID = ownerOf(owner), run.Status(status), checkpoint.ID(last)
		one.StartedAt, one.UpdatedAt, one.FinishedAt = one.StartedAt.UTC(), one.UpdatedAt.UTC(), stored(finished)
		one.State = claim.State{
			Wake: stored(wake), Token: claim.Token(deref(token)), ClaimedAt: stored(claimed), Attempts: int(attempts), Abandons: int(abandons),
			Poison: claim.Poison{At: stored(poisoned), Reason: deref(reason)},
		}
		page = append(page, one)
		return err
	}, after, int64(auditPage), a.p.Runs)
	return page, err
}

// auditEvents are those of a page's runs, one run after the other, read as they are looked at.
type auditEvents struct {
	rows    pgx.Rows
	run     string
	event   backend.StoredEvent
	there   bool // a row is read and not yet looked at
	reading error
}

func (a *audit) events(ctx context.Context, tx pgx.Tx, page []backend.StoredRun) (*auditEvents, error) {
	text, err := a.s.text(stAuditEvents)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].Run
	}
	rows, err := tx.Query(ctx, text, ids)
	if err != nil {
		return nil, err
	}
	e := &auditEvents{rows: rows}
	e.next()
	return e, nil
}

func (e *auditEvents) next() {
	var last *string
	if e.there = e.reading == nil && e.rows.Next(); !e.there {
		return
	}
	e.event = backend.StoredEvent{}
	e.reading = e.rows.Scan(&e.run, &e.event.Seq, &last, &e.event.Body)
	e.event.CheckpointID = checkpoint.ID(deref(last))
	e.there = e.reading == nil
}

func (e *auditEvents) of(run string) iter.Seq[backend.StoredEvent] {
	return func(yield func(backend.StoredEvent) bool) {
		for e.there && e.run == run {
			if !yield(e.event) {
				return
			}
			e.next()
		}
	}
}

func (e *auditEvents) err() error { return errors.Join(e.reading, e.rows.Err()) }

// Repair implements backend.Auditor. A dry run does the same and rolls it back.
func (s *Store) Repair(ctx context.Context, f backend.Finding, dryRun bool) (bool, error) {
	var st statement
	args := []any{f.Run}
	switch f.Check {
	case "I8.wake":
		st, args = stMendWake, append(args, s.ownNow())
	case "I10.row":
		st = stMendRow
	case "I12.key":
		st, args = stMendKey, []any{f.Tenant, f.Graph.ID, f.Key}
	default:
		return false, fmt.Errorf("%w: a repair of %s: %s", backend.ErrUnsupported, f.Check, f.Remedy)
	}
	repaired := false
	err := s.try(ctx, "repair", always, func(session) error {
		repaired = false
		err := s.within(ctx, func(tx pgx.Tx) error {
			err := s.run(ctx, tx, st, func(pgx.Rows) error { repaired = true; return nil }, args...)
			if err == nil && dryRun {
				err = errStop
			}
			return err
		})
		if errors.Is(err, errStop) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if repaired && !dryRun {
		s.wake()
	}
	return repaired, nil
}
