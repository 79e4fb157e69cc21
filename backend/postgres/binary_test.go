package postgres

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

var instants = rapid.Custom(func(t *rapid.T) time.Time {
	return time.UnixMicro(rapid.Int64Range(-62_135_596_800_000_000, 253_402_300_799_999_999).Draw(t, "µs")).In(
		time.FixedZone("", 60*rapid.IntRange(-600, 600).Draw(t, "zone")))
})

func arguments() *rapid.Generator[any] {
	text, raw := rapid.StringN(0, 20, -1), rapid.SliceOfN(rapid.Byte(), 0, 20)
	boxed := func(g ...*rapid.Generator[any]) *rapid.Generator[any] { return rapid.OneOf(g...) }
	return boxed(
		rapid.Just[any](nil), text.AsAny(), rapid.Ptr(text, true).AsAny(), raw.AsAny(), rapid.Just[any]([]byte(nil)),
		rapid.Bool().AsAny(), rapid.Ptr(rapid.Bool(), true).AsAny(), rapid.Int32().AsAny(), rapid.Int64().AsAny(), rapid.Ptr(rapid.Int64(), true).AsAny(),
		instants.AsAny(), rapid.Ptr(instants, true).AsAny(),
		rapid.SliceOf(text).AsAny(), rapid.SliceOf(rapid.Ptr(text, true)).AsAny(),
		rapid.SliceOf(rapid.OneOf(raw, rapid.Just([]byte(nil)))).AsAny(), rapid.SliceOf(rapid.Bool()).AsAny(),
		rapid.SliceOf(rapid.Int32()).AsAny(), rapid.SliceOf(rapid.Int64()).AsAny(),
		rapid.SliceOf(instants).AsAny(), rapid.SliceOf(rapid.Ptr(instants, true)).AsAny(),
		rapid.Just[any]([]string{}), rapid.Just[any]([]*time.Time{}), rapid.Just[any]([]string(nil)), rapid.Just[any]([][]byte(nil)), rapid.Just[any]([]time.Time(nil)),
	)
}

func TestParametersAreWhatPgxMakesOfThem(t *testing.T) {
	types := pgtype.NewMap()
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(arguments(), 0, 8).Draw(t, "arguments")
		oids := make([]uint32, len(args))
		for i, arg := range args {
			if _, oids[i] = measure(arg); oids[i] == 0 {
				oids[i] = pgtype.TextOID
			}
		}
		var p parameters
		for range 2 { // the second time into the same buffer
			if !p.encode(oids, args) {
				t.Fatalf("%v are not known", args)
			}
			if len(p.values) != len(args) {
				t.Fatalf("%d values of %d", len(p.values), len(args))
			}
			total := 0
			for i, arg := range args {
				want, err := types.Encode(oids[i], pgx.BinaryFormatCode, arg, []byte{})
				if err != nil {
					t.Fatal(err)
				}
				if got := p.values[i]; !bytes.Equal(got, want) || (got == nil) != (want == nil) {
					t.Fatalf("%T %v: %x, pgx makes %x", arg, arg, got, want)
				}
				if p.formats[i] != pgx.BinaryFormatCode {
					t.Fatalf("format %d", p.formats[i])
				}
				size, _ := measure(arg)
				total += size
			}
			if len(p.buffer) > total {
				t.Fatalf("%d bytes, measured were %d", len(p.buffer), total)
			}
		}
	})
}

func TestParametersOfOtherTypesAreLeftToPgx(t *testing.T) {
	var p parameters
	for _, c := range []struct {
		oid uint32
		arg any
	}{
		{pgtype.TextOID, int64(1)},
		{pgtype.Int4OID, int64(1)},
		{pgtype.VarcharArrayOID, []string{"a"}},
		{pgtype.Float8OID, 1.5},
	} {
		if p.encode([]uint32{c.oid}, []any{c.arg}) {
			t.Errorf("%T as %d", c.arg, c.oid)
		}
	}
	if p.encode([]uint32{pgtype.TextOID}, nil) {
		t.Error("an argument is missing")
	}
}

// poolLike is a pool like another, but for what change does to its settings.
func poolLike(t *testing.T, like *pgxpool.Pool, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := like.Config()
	change(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// What the server has forgotten, or what has another result since its tables changed, is prepared anew.
func TestStatementsThatTheServerHasForgottenArePreparedAnew(t *testing.T) {
	pool := poolLike(t, testPool(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := testStore(t, pool, Options{PollOnly: true})
	table := pgx.Identifier{s.opts.Schema, "forgotten"}.Sanitize()
	exec := func(text string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	exec("create table " + table + " (a integer); insert into " + table + " values (7)")
	text := "select t.*, $1::text from " + table + " t"
	ask := func() (found string, err error) {
		err = s.onConnection(t.Context(), pool, text, func(r pgx.Rows) error {
			values, err := r.Values()
			found = fmt.Sprint(values)
			return err
		}, []any{"x"})
		return found, err
	}
	for _, c := range []struct{ before, want string }{
		{"", "[7 x]"},
		{"deallocate all", "[7 x]"},
		{"alter table " + table + " alter a type text using 'seven'", "[seven x]"},
		{"discard all", "[seven x]"},
	} {
		if c.before != "" {
			exec(c.before)
		}
		if got, err := ask(); got != c.want || err != nil {
			t.Errorf("after %q: %s, %v", c.before, got, err)
		}
	}
	exec("drop table " + table)
	if _, err := ask(); code(err) != codeUndefinedTable {
		t.Error(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if p := preparedOn(conn.Conn()); !p.direct || p.statements[text] == nil {
		t.Error("the statement was not sent here")
	}
}

// A host that traces what is asked of its pool sees the store's statements, too.
func TestStatementsOfATracedPoolAreSeenByItsTracer(t *testing.T) {
	tracer := &countingTracer{}
	s := testStore(t, poolLike(t, testPool(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer }), Options{PollOnly: true})
	before := tracer.n.Load()
	if _, err := s.Now(t.Context()); err != nil || tracer.n.Load() == before {
		t.Errorf("%d statements were seen, %v", tracer.n.Load()-before, err)
	}
}

type countingTracer struct{ n atomic.Int64 }

func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
