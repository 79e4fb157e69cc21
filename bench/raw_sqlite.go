package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver that belay uses too
)

// The raw program for SQLite: belay's own tables, the driver under database/sql, statements prepared
// once, a group of runs a transaction.

const (
	rawFileDue = `select r.no, r.id, r.checkpoint_seq, d.body from belay_runs r join belay_documents d on d.run = r.no
		where r.wake_at is not null and r.wake_at <= ?1 order by r.wake_at, r.id limit ?2`
	rawFileClaim  = `update belay_runs set wake_at = null, claim_token = ?2, claimed_at = ?3, claim_attempts = 1 where no = ?1`
	rawFileCommit = `update belay_runs set status = ?4, updated_at = ?5, finished_at = ?6, claim_token = ?7, claimed_at = ?8,
		claim_attempts = 0, checkpoint_seq = ?3 + 1, checkpoint_type = ?9, checkpoint_id = ?10
		where no = ?1 and claim_token = ?2 and checkpoint_seq = ?3`
	rawFileDocument = `update belay_documents set body = ?2 where run = ?1`
	rawFileEvent    = `insert into belay_events (run, seq, checkpoint_id, body) values (?1, ?2, ?3, ?4)`
)

// rawFile is an open file with its prepared statements.
type rawFile struct {
	db                                     *sql.DB
	due, claim, commit, document, addEvent *sql.Stmt
}

// openRaw opens a file that belay made, with the settings belay's writer has.
func openRaw(ctx context.Context, path string) (*rawFile, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(2)"+
		"&_pragma=foreign_keys(1)&_pragma=wal_autocheckpoint(4000)&_pragma=temp_store(2)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // there is one writer at a time anyhow
	f := &rawFile{db: db}
	for statement, text := range map[**sql.Stmt]string{
		&f.due: rawFileDue, &f.claim: rawFileClaim, &f.commit: rawFileCommit, &f.document: rawFileDocument, &f.addEvent: rawFileEvent,
	} {
		if *statement, err = db.PrepareContext(ctx, text); err != nil {
			return nil, fmt.Errorf("%w (%w)", err, db.Close())
		}
	}
	return f, nil
}

// drain drives everything that is due to its end, and answers how many runs that were.
func (f *rawFile) drain(ctx context.Context, s *script) (int, error) {
	total := 0
	for {
		n, err := f.group(ctx, s)
		if err != nil || n == 0 {
			return total, err
		}
		total += n
	}
}

type rawClaimed struct{ no, seq int64 }

// group claims one group and commits its steps, a transaction each.
func (f *rawFile) group(ctx context.Context, s *script) (int, error) {
	var claimed []rawClaimed
	err := f.transaction(ctx, func(tx *sql.Tx) error {
		now := time.Now().UnixMicro()
		rows, err := tx.StmtContext(ctx, f.due).QueryContext(ctx, now, rawGroup)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c rawClaimed
			var id string
			var body []byte
			if err := rows.Scan(&c.no, &id, &c.seq, &body); err != nil {
				return err
			}
			claimed = append(claimed, c)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		claim := tx.StmtContext(ctx, f.claim)
		for _, c := range claimed {
			if _, err := claim.ExecContext(ctx, c.no, "raw", now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for step := 1; step < len(s.events); step++ {
		events, last := packed(s.events[step]), step == len(s.events)-1
		err := f.transaction(ctx, func(tx *sql.Tx) error { return f.step(ctx, tx, s, claimed, events, last) })
		if err != nil {
			return 0, err
		}
		for i := range claimed {
			claimed[i].seq++
		}
	}
	return len(claimed), nil
}

func (f *rawFile) step(ctx context.Context, tx *sql.Tx, s *script, claimed []rawClaimed, events recorded, last bool) error {
	now := time.Now().UnixMicro()
	status, kind := "running", "step_committed"
	var finished, token, claimedAt any
	if last {
		status, kind, finished = "done", "run_completed", now
	} else {
		token, claimedAt = "raw", now
	}
	commit, document, add := tx.StmtContext(ctx, f.commit), tx.StmtContext(ctx, f.document), tx.StmtContext(ctx, f.addEvent)
	for _, c := range claimed {
		result, err := commit.ExecContext(ctx, c.no, "raw", c.seq, status, now, finished, token, claimedAt, kind, "raw")
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return wrong("a commit touched %d rows (%v)", n, err)
		}
		if _, err := document.ExecContext(ctx, c.no, s.end); err != nil {
			return err
		}
		if _, err := add.ExecContext(ctx, c.no, events.seq, "raw", events.body); err != nil {
			return err
		}
	}
	return nil
}

// packed is a commit's events as belay's one row, under the last one's sequence.
func packed(events []recorded) recorded {
	row := strconv.AppendInt([]byte{'['}, events[0].seq, 10)
	for _, e := range events {
		row = append(append(row, ','), e.body...)
	}
	return recorded{seq: events[len(events)-1].seq, body: append(row, ']'), closes: true}
}

func (f *rawFile) transaction(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return fmt.Errorf("%w (rollback: %v)", err, tx.Rollback())
	}
	return tx.Commit()
}

// check proves that n runs are done, with equally long histories.
func (f *rawFile) check(ctx context.Context, n int) error {
	var done, histories, shortest, longest int // of rows of events
	if err := f.db.QueryRowContext(ctx, `select count(*) from belay_runs where status = 'done'`).Scan(&done); err != nil {
		return err
	}
	if err := f.db.QueryRowContext(ctx, `select count(*), min(events), max(events) from (select count(*) as events from belay_events group by run)`).
		Scan(&histories, &shortest, &longest); err != nil {
		return err
	}
	if done != n || histories != n || shortest != longest {
		return wrong("%d runs done, %d histories of %d to %d events, %d were started", done, histories, shortest, longest, n)
	}
	return nil
}
