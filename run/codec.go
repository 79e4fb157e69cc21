package run

import (
	"errors"
	"fmt"
)

// Format is the newest document format this package writes.
//
// The codec of format 1: an envelope {"format":1,"run":{...}} around one object
// whose members, in the order of Document's fields as encode.go lists them, leave
// out what is empty. Instants are RFC 3339 in UTC with exactly six decimals. Values
// stand in the document as they are.
const Format = 1

// ErrFormat is matched by every *FormatError.
var ErrFormat = errors.New("belay: incompatible document format")

// FormatError is a document of a format this build cannot read: it is newer, or
// holds members this build does not know. The run is unharmed; a newer build reads it.
type FormatError struct {
	Format int
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: format %d: %s: let a newer build of belay take this run", ErrFormat, e.Format, e.Reason)
}

// Is makes errors.Is(err, ErrFormat) true.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// upcasts[i] turns the "run" member of format i+1 into that of format i+2. The
// array's length follows Format, so a new format without its upcast does not go
// unnoticed.
var upcasts [Format - 1]func(document []byte) ([]byte, error)

// Encode writes a document in format Format. The bytes are deterministic: equal
// documents give equal bytes. It does not judge the document, as Valid does, and
// answers ErrInvalidDocument only for what no bytes could stand for.
func Encode(d *Document) ([]byte, error) {
	if d == nil {
		return nil, invalid("it is nil")
	}
	return AppendDocument(make([]byte, 0, typical.document(d)), d)
}

// AppendDocument is Encode into a buffer of the caller's.
func AppendDocument(dst []byte, d *Document) ([]byte, error) {
	if d == nil {
		return dst, invalid("it is nil")
	}
	e := encoder{b: dst}
	e.raw(`{"format":`)
	e.int(Format)
	e.raw(`,"run":`)
	e.document(d)
	e.b = append(e.b, '}')
	if e.bad != "" {
		return dst, invalid("run %s holds %s", d.ID, e.bad)
	}
	return e.b, nil
}

// Decode reads a document of any format up to Format, and checks that it is
// Valid. Damaged bytes wrap ErrInvalidDocument; a newer format, and unknown
// members, answer *FormatError. raw is not retained.
func Decode(raw []byte) (*Document, error) {
	r := newDecoder(raw)
	var d *Document
	err := r.envelope(func(format int) {
		if format == Format {
			d = r.document()
			return
		}
		d = r.older(upcasts[format-1:])
	})
	if err != nil {
		return nil, err
	}
	if err := d.Valid(); err != nil {
		return nil, err
	}
	return d, nil
}

// older reads the document of an older format, and brings it up to this one.
func (r *decoder) older(upcasts []func([]byte) ([]byte, error)) *Document {
	body := []byte(r.value())
	for _, upcast := range upcasts {
		if r.err == nil {
			body, r.err = upcast(body)
		}
	}
	if r.err != nil {
		return nil
	}
	inner := newDecoder(body)
	d := inner.document()
	inner.finish("the document")
	r.err, r.unknown = inner.err, inner.unknown
	return d
}

// EncodeEvent writes the canonical content of an event: canonical JSON, the same
// bytes for the same fact. It answers ErrInvalidEvent for an event that may not be stored.
func EncodeEvent(e Event) ([]byte, error) {
	return AppendEvent(make([]byte, 0, typical.event(&e)), &e)
}

// AppendEvent is EncodeEvent into a buffer of the caller's.
func AppendEvent(dst []byte, e *Event) ([]byte, error) {
	if e == nil {
		return dst, fmt.Errorf("%w: it is nil", ErrInvalidEvent)
	}
	if err := e.Valid(); err != nil {
		return dst, err
	}
	enc := encoder{b: dst}
	enc.event(e)
	if enc.bad != "" {
		return dst, invalidEvent(*e, "it holds "+enc.bad)
	}
	return enc.b, nil
}

// DecodeEvent reads an event. Damaged bytes wrap ErrInvalidEvent; unknown members
// and event types, which a newer build wrote, answer *FormatError. raw is not retained.
func DecodeEvent(raw []byte) (Event, error) {
	e, err := decodeEvent(raw)
	if err != nil {
		return Event{}, err
	}
	if err := e.Valid(); err != nil {
		return Event{}, err
	}
	return e, nil
}
