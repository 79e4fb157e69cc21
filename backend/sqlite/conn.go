package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	driversqlite "modernc.org/sqlite"
)

// session runs statements: on a connection of the store, or in a transaction of
// the host.
type session interface {
	// exec answers how many rows the statement changed.
	exec(ctx context.Context, st *statement, args ...any) (int64, error)
	// insert answers the number of the row that the statement inserted.
	insert(ctx context.Context, st *statement, args ...any) (int64, error)
	// query calls each with every row; errStop ends the query early without an error.
	// The row is valid until each returns; its byte slices stay valid.
	query(ctx context.Context, st *statement, each func(row) error, args ...any) error
}

var errStop = errors.New("stop")

// row is one row: int64, string, []byte or nil.
type row []driver.Value

func (r row) int(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

func (r row) text(i int) string {
	s, _ := r[i].(string)
	return s
}

func (r row) blob(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}

// conn is one connection of the driver's own, used by one goroutine at a time.
// Going below database/sql saves a tenth of a grouped commit.
type conn struct {
	raw      driver.Conn
	prepared []driver.Stmt // by statement.index
	args     []driver.NamedValue
	// writes counts changes, so that the writer knows whether a failed operation left any.
	writes int64
}

func dial(uri string) (*conn, error) {
	raw, err := (&driversqlite.Driver{}).Open(uri)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, prepared: make([]driver.Stmt, len(statements))}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, st := range c.prepared {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

// run executes text that is not one of the prepared statements, which may be a script.
func (c *conn) run(ctx context.Context, text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(ctx, text, nil)
	return err
}

// read queries text that is not one of the prepared statements.
func (c *conn) read(ctx context.Context, text string, each func(row) error, args ...any) error {
	rows, err := c.raw.(driver.QueryerContext).QueryContext(ctx, text, c.named(args))
	if err != nil {
		return err
	}
	return scan(rows, each)
}

func (c *conn) prepare(st *statement) (driver.Stmt, error) {
	if p := c.prepared[st.index]; p != nil {
		return p, nil
	}
	p, err := c.raw.Prepare(st.text)
	if err != nil {
		return nil, err
	}
	c.prepared[st.index] = p
	return p, nil
}

func (c *conn) named(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

func (c *conn) exec(ctx context.Context, st *statement, args ...any) (int64, error) {
	p, err := c.prepare(st)
	if err != nil {
		return 0, err
	}
	res, err := p.(driver.StmtExecContext).ExecContext(ctx, c.named(args))
	if err != nil {
		return 0, err
	}
	if !st.writes {
		return 0, nil
	}
	n, err := res.RowsAffected()
	c.writes += n
	return n, err
}

func (c *conn) insert(ctx context.Context, st *statement, args ...any) (int64, error) {
	p, err := c.prepare(st)
	if err != nil {
		return 0, err
	}
	res, err := p.(driver.StmtExecContext).ExecContext(ctx, c.named(args))
	if err != nil {
		return 0, err
	}
	c.writes++
	return res.LastInsertId()
}

func (c *conn) query(ctx context.Context, st *statement, each func(row) error, args ...any) error {
	p, err := c.prepare(st)
	if err != nil {
		return err
	}
	rows, err := p.(driver.StmtQueryContext).QueryContext(ctx, c.named(args))
	if err != nil {
		return err
	}
	if !st.writes {
		return scan(rows, each)
	}
	return scan(rows, func(r row) error {
		c.writes++
		return each(r)
	})
}

func scan(rows driver.Rows, each func(row) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	values := make(row, len(rows.Columns()))
	for {
		switch err := rows.Next(values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch err := each(values); {
		case errors.Is(err, errStop):
			return nil
		case err != nil:
			return err
		}
	}
}

// hostTx is a transaction of the host's.
type hostTx struct{ tx *sql.Tx }

func (h hostTx) exec(ctx context.Context, st *statement, args ...any) (int64, error) {
	res, err := h.tx.ExecContext(ctx, st.text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (h hostTx) insert(ctx context.Context, st *statement, args ...any) (int64, error) {
	res, err := h.tx.ExecContext(ctx, st.text, args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (h hostTx) query(ctx context.Context, st *statement, each func(row) error, args ...any) (err error) {
	rows, err := h.tx.QueryContext(ctx, st.text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make(row, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = (*any)(&values[i]) // database/sql puts NULL into no other pointer to an interface
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		switch err := each(values); {
		case errors.Is(err, errStop):
			return nil
		case err != nil:
			return err
		}
	}
	return rows.Err()
}
