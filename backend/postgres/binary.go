package postgres

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// parameters are the arguments of a statement in PostgreSQL's binary format, in one buffer that is as
// large as they need. They are what pgx makes of the same values; it looks at each element of an array
// by reflection, and lets its buffer grow.
type parameters struct {
	buffer  []byte
	values  [][]byte // parts of buffer; nil is null
	formats []int16
	results []int16
}

// parametersKept bounds the buffer that is kept for the next statement.
const parametersKept = 4 << 20

var parametersFree = sync.Pool{New: func() any { return new(parameters) }}

func (p *parameters) free() {
	if cap(p.buffer) <= parametersKept {
		parametersFree.Put(p)
	}
}

// encode encodes the arguments of a statement that takes these types. It reports false when one is of a
// type that it does not know, or that the statement does not take as it is.
func (p *parameters) encode(oids []uint32, args []any) bool {
	if len(oids) != len(args) {
		return false
	}
	total := 0
	for i, arg := range args {
		size, oid := measure(arg)
		if size < 0 || oid != 0 && oid != oids[i] {
			return false
		}
		total += size
	}
	if p.buffer == nil || cap(p.buffer) < total { // a part of nil would be null
		p.buffer = make([]byte, 0, total)
	}
	b := p.buffer[:0]
	p.values, p.formats = p.values[:0], p.formats[:0]
	for _, arg := range args {
		begin := len(b)
		var there bool
		if b, there = appendArgument(b, arg); there {
			p.values = append(p.values, b[begin:len(b):len(b)])
		} else {
			p.values = append(p.values, nil)
		}
		p.formats = append(p.formats, pgx.BinaryFormatCode)
	}
	p.buffer = b
	return true
}

// size is what the message that carries the arguments needs at most, beside the statement's name.
func (p *parameters) size() int { return len(p.buffer) + 8*len(p.values) + 2*len(p.results) + 64 }

const (
	dimensionSize = 8
	arrayHead     = 12 // dimensions, whether there are nulls, the type of elements
	lengthSize    = 4
	instantSize   = 8
)

// epoch is the instant that PostgreSQL counts microseconds from, as microseconds of Unix time.
const epoch = 946_684_800_000_000

// measure is the size of an argument and the type that it is sent as: 0 for a null of any type. The
// size is negative for an argument that it does not know.
func measure(arg any) (size int, oid uint32) {
	switch v := arg.(type) {
	case nil:
		return 0, 0
	case string:
		return len(v), pgtype.TextOID
	case *string:
		if v == nil {
			return 0, 0
		}
		return len(*v), pgtype.TextOID
	case []byte:
		return len(v), pgtype.ByteaOID
	case bool, *bool:
		return 1, pgtype.BoolOID
	case int32:
		return 4, pgtype.Int4OID
	case int64, *int64:
		return 8, pgtype.Int8OID
	case time.Time, *time.Time:
		return instantSize, pgtype.TimestamptzOID
	case []string:
		return arraySize(v, func(s string) int { return len(s) }), pgtype.TextArrayOID
	case []*string:
		return arraySize(v, func(s *string) int { return len(deref(s)) }), pgtype.TextArrayOID
	case [][]byte:
		return arraySize(v, func(b []byte) int { return len(b) }), pgtype.ByteaArrayOID
	case []bool:
		return arraySize(v, func(bool) int { return 1 }), pgtype.BoolArrayOID
	case []int32:
		return arraySize(v, func(int32) int { return 4 }), pgtype.Int4ArrayOID
	case []int64:
		return arraySize(v, func(int64) int { return 8 }), pgtype.Int8ArrayOID
	case []time.Time:
		return arraySize(v, func(time.Time) int { return instantSize }), pgtype.TimestamptzArrayOID
	case []*time.Time:
		return arraySize(v, func(*time.Time) int { return instantSize }), pgtype.TimestamptzArrayOID
	}
	return -1, 0
}

func arraySize[E any](elements []E, size func(E) int) int {
	n := arrayHead + dimensionSize
	for _, e := range elements {
		n += lengthSize + size(e)
	}
	return n
}

// appendArgument appends an argument that measure knows, and reports whether it is not null.
func appendArgument(b []byte, arg any) ([]byte, bool) {
	switch v := arg.(type) {
	case string:
		return append(b, v...), true
	case *string:
		return appendElement(b, v, appendText)
	case []byte:
		return append(b, v...), v != nil
	case bool:
		return appendBool(b, v), true
	case *bool:
		return appendElement(b, v, appendBool)
	case int32:
		return appendInt4(b, v), true
	case int64:
		return appendInt8(b, v), true
	case *int64:
		return appendElement(b, v, appendInt8)
	case time.Time:
		return appendInstant(b, v), true
	case *time.Time:
		return appendElement(b, v, appendInstant)
	case []string:
		return appendArray(b, v, pgtype.TextOID, never, appendText)
	case []*string:
		return appendArray(b, v, pgtype.TextOID, isNull, appendPointed(appendText))
	case [][]byte:
		return appendArray(b, v, pgtype.ByteaOID, func(e []byte) bool { return e == nil }, func(b, e []byte) []byte { return append(b, e...) })
	case []bool:
		return appendArray(b, v, pgtype.BoolOID, never, appendBool)
	case []int32:
		return appendArray(b, v, pgtype.Int4OID, never, appendInt4)
	case []int64:
		return appendArray(b, v, pgtype.Int8OID, never, appendInt8)
	case []time.Time:
		return appendArray(b, v, pgtype.TimestamptzOID, never, appendInstant)
	case []*time.Time:
		return appendArray(b, v, pgtype.TimestamptzOID, isNull, appendPointed(appendInstant))
	}
	return b, false
}

func appendElement[E any](b []byte, e *E, write func([]byte, E) []byte) ([]byte, bool) {
	if e == nil {
		return b, false
	}
	return write(b, *e), true
}

func appendPointed[E any](write func([]byte, E) []byte) func([]byte, *E) []byte {
	return func(b []byte, e *E) []byte { return write(b, *e) }
}

func never[E any](E) bool { return false }

func isNull[E any](e *E) bool { return e == nil }

// appendArray appends an array of one dimension, whose indexes begin at 1. A nil slice is null.
func appendArray[E any](b []byte, elements []E, element uint32, null func(E) bool, write func([]byte, E) []byte) ([]byte, bool) {
	if elements == nil {
		return b, false
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	nulls := len(b)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(len(elements)))
	b = binary.BigEndian.AppendUint32(b, 1)
	for _, e := range elements {
		length := len(b)
		b = binary.BigEndian.AppendUint32(b, ^uint32(0))
		if null(e) {
			binary.BigEndian.PutUint32(b[nulls:], 1)
			continue
		}
		b = write(b, e)
		binary.BigEndian.PutUint32(b[length:], uint32(len(b)-length-lengthSize))
	}
	return b, true
}

func appendText(b []byte, s string) []byte { return append(b, s...) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt4(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

func appendInt8(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendInstant(b []byte, t time.Time) []byte { return appendInt8(b, t.UnixMicro()-epoch) }

// columns read a row as it came: without a copy, and only as long as it is the row at hand. The values
// of texts and bytes are the same in either format.
type columns [][]byte

// binaryColumns are the columns of a row of which those that are not text came in the binary format.
func binaryColumns(r pgx.Rows) (columns, bool) {
	for _, f := range r.FieldDescriptions() {
		if f.Format != pgx.BinaryFormatCode && f.DataTypeOID != pgtype.TextOID {
			return nil, false
		}
	}
	return r.RawValues(), true
}

// integer is one of four or of eight bytes.
func (c columns) integer(i int) int64 {
	switch b := c[i]; len(b) {
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (c columns) instant(i int) time.Time { return time.UnixMicro(c.integer(i) + epoch).UTC() }
