package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// prepared runs statements on a connection. On one that keeps prepared statements it sends their
// arguments itself; else, and where the host traces what is asked of its pool, pgx does everything.
type prepared struct {
	conn       *pgx.Conn
	keeps      bool // prepared statements, and so their plans
	direct     bool
	statements map[string]*pgconn.StatementDescription // by their texts
	planned    time.Time                               // since when plans may have been kept
	renewal    time.Duration                           // for how long they are
}

const (
	// firstRenewal is for how long a connection keeps its first plans. A plan that is made while a table is
	// small reads all of it, and would go on to while the table grows, until its next analysis, which may be minutes
	// away. Each renewal comes after twice the time, and at last after lastRenewal.
	firstRenewal = 50 * time.Millisecond
	lastRenewal  = 10 * time.Second
)

// ofConnection is under which name a connection keeps its prepared.
const ofConnection = "github.com/belay-run/belay/backend/postgres"

// preparedOn is the connection's, which lives as long as the connection.
func preparedOn(conn *pgx.Conn) *prepared {
	kept := conn.PgConn().CustomData()
	if p, ok := kept[ofConnection].(*prepared); ok {
		return p
	}
	config := conn.Config()
	keeps := config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && config.StatementCacheCapacity > 0
	p := &prepared{
		conn:       conn,
		keeps:      keeps,
		direct:     keeps && config.Tracer == nil,
		statements: make(map[string]*pgconn.StatementDescription),
		planned:    time.Now(),
		renewal:    firstRenewal,
	}
	kept[ofConnection] = p
	return p
}

// renew has the server forget its plans when they have been kept for long enough.
func (p *prepared) renew(ctx context.Context) error {
	if !p.keeps || time.Since(p.planned) < p.renewal {
		return nil
	}
	// Where the server refuses, it keeps its plans.
	if err := p.conn.PgConn().Exec(ctx, "discard plans").Close(); err != nil && (p.conn.IsClosed() || code(err) == "") {
		return &undone{err}
	}
	p.planned, p.renewal = time.Now(), min(2*p.renewal, lastRenewal)
	return nil
}

func (p *prepared) query(ctx context.Context, text string, args []any) (pgx.Rows, error) {
	if err := p.renew(ctx); err != nil {
		return nil, err
	}
	if !p.direct {
		return p.conn.Query(ctx, text, args...)
	}
	sd := p.statements[text]
	if sd == nil {
		var err error
		if sd, err = p.conn.Prepare(ctx, nameOf(text), text); err != nil {
			return nil, &undone{err}
		}
		p.statements[text] = sd
	}
	with := parametersFree.Get().(*parameters)
	defer with.free()
	if !with.encode(sd.ParamOIDs, args) {
		return p.conn.Query(ctx, text, args...)
	}
	with.results = with.results[:0]
	for _, f := range sd.Fields {
		with.results = append(with.results, p.conn.TypeMap().FormatCodeForOID(f.DataTypeOID))
	}
	pg := p.conn.PgConn()
	pg.Frontend().Send(room(with.size()))
	// It copies the values into its message, so that they are free when it answers.
	return pgx.RowsFromResultReader(p.conn.TypeMap(), pg.ExecStatement(ctx, sd, with.values, with.formats, with.results)), nil
}

// outdated reports whether a statement failed since the server has forgotten it, or has seen its tables
// change. Nothing took effect then, and it is prepared anew the next time.
func (p *prepared) outdated(ctx context.Context, text string, err error) bool {
	if c := code(err); p.statements[text] == nil || c != codeUndefinedPrepared && c != codePlanChanged {
		return false
	}
	delete(p.statements, text)
	return p.conn.Deallocate(ctx, nameOf(text)) == nil
}

// codePlanChanged is the SQLSTATE of a prepared statement whose result would be of other types now.
const codePlanChanged = "0A000"

// nameOf is the name of a prepared statement: schemas differ, and so may releases.
func nameOf(text string) string {
	digest := sha256.Sum256([]byte(text))
	return "belay_" + hex.EncodeToString(digest[:16])
}

// room is a message without content, which makes room in the buffer of those that follow: by itself it
// would grow in steps, and be copied at each.
type room int

// Frontend marks a message that is sent to a server.
func (room) Frontend() {}

// Encode implements pgproto3.Message.
func (r room) Encode(dst []byte) ([]byte, error) { return slices.Grow(dst, int(r)), nil }

// Decode implements pgproto3.Message, and is never called.
func (room) Decode([]byte) error { return nil }
