package run

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/belay-run/belay/claim"
)

// Format is the newest document format this package writes.
//
// A document is an envelope {"format":N,"run":{...}} around one object whose members,
// in the order of Document's fields as encode.go lists them, leave out what is empty.
// Instants are RFC 3339 in UTC with exactly six decimals. Values stand in the document
// as they are.
//
//   - Format 1 is everything but a lineage and renamed nodes.
//   - Format 2 has these too: it says which versions of its graph a run was migrated
//     away from.
const Format = 2

// ErrFormat is matched by every *FormatError.
var ErrFormat = errors.New("belay: incompatible document format")

// FormatError is a document or an event of a format this build cannot read: it is newer, or
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

// WriteFormatError is a document that the format which its writer is pinned to cannot
// say. The run is unharmed; a writer that is not pinned writes it. It matches ErrFormat.
type WriteFormatError struct {
	Run    string
	Format int    // the writer's
	Needs  int    // the oldest format that can say it
	What   string // what the writer's format cannot say
}

func (e *WriteFormatError) Error() string {
	return fmt.Sprintf("%v: run %s has %s, which format %d cannot say: let a writer that is not pinned below format %d take this run",
		ErrFormat, e.Run, e.What, e.Format, e.Needs)
}

// Is makes errors.Is(err, ErrFormat) true.
func (e *WriteFormatError) Is(target error) bool { return target == ErrFormat }

// CheckFormat checks a format that a writer is to be pinned to: 0, for Format, or one of
// 1 to Format. Otherwise it answers *claim.ArgumentError.
func CheckFormat(format int) error {
	if format < 0 || format > Format {
		return &claim.ArgumentError{Argument: "write format", Reason: fmt.Sprintf("is %d: this build writes the formats 1 to %d, and 0 is the newest", format, Format)}
	}
	return nil
}

// CheckWritable reports whether a document can be written in a format (0 is Format):
// nil, *WriteFormatError, or the answer of CheckFormat. It reads no more of the document
// than the members that not every format has.
func CheckWritable(d *Document, format int) error {
	if format == 0 || format == Format || d == nil {
		return nil
	}
	if err := CheckFormat(format); err != nil {
		return err
	}
	if what := d.news(); what != "" {
		return &WriteFormatError{Run: d.ID, Format: format, Needs: 2, What: what}
	}
	return nil
}

// news is what the document holds that format 1 cannot say, in words.
func (d *Document) news() string {
	switch {
	case len(d.Lineage) > 0:
		return "a lineage, since it was migrated to another version of its graph"
	case len(d.Renamed) > 0:
		return "renamed nodes, since it was migrated to another version of its graph"
	}
	return ""
}

// upcasts[i] turns the "run" member of format i+1 into that of format i+2. The
// array's length follows Format, so a new format without its upcast does not go
// unnoticed.
var upcasts = [Format - 1]func(document []byte) ([]byte, error){addLineage}

// addLineage brings a document from format 1 to format 2: what it says means the same,
// and its run was never migrated.
func addLineage(document []byte) ([]byte, error) { return document, nil }

// Encode writes a document in format Format. The bytes are deterministic: equal
// documents give equal bytes. It does not judge the document, as Valid does, and
// answers ErrInvalidDocument only for what no bytes could stand for.
func Encode(d *Document) ([]byte, error) { return EncodeAs(d, Format) }

// EncodeAs is Encode for a writer that is pinned to a format, 1 to Format, while readers
// of an older release still live; 0 is Format. What the format cannot say is refused with
// *WriteFormatError, never left out; a format that this build does not write is
// *claim.ArgumentError.
func EncodeAs(d *Document, format int) ([]byte, error) {
	if d == nil {
		return nil, invalid("it is nil")
	}
	if err := CheckWritable(d, format); err != nil {
		return nil, err
	}
	return appendDocument(make([]byte, 0, typical.document(d)), d, cmp.Or(format, Format))
}

// AppendDocument is Encode into a buffer of the caller's.
func AppendDocument(dst []byte, d *Document) ([]byte, error) {
	if d == nil {
		return dst, invalid("it is nil")
	}
	return appendDocument(dst, d, Format)
}

func appendDocument(dst []byte, d *Document, format int) ([]byte, error) {
	e := encoder{b: dst}
	e.raw(`{"format":`)
	e.int(int64(format))
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
	defer r.free()
	var d *Document
	err := r.envelope(func(format int) {
		if format == Format {
			d = r.document(format)
			return
		}
		d = r.older(format, upcasts[format-1:])
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
func (r *decoder) older(format int, upcasts []func([]byte) ([]byte, error)) *Document {
	body := []byte(r.value())
	for _, upcast := range upcasts {
		if r.err == nil {
			body, r.err = upcast(body)
		}
	}
	if r.err != nil {
		return nil
	}
	inner := decoderOf(body)
	defer inner.free()
	d := inner.document(format)
	inner.finish("the document")
	r.err, r.unknown = inner.err, inner.unknown
	return d
}

// EventFormat is the format of events. It is not written, since an event that is proposed
// again must have the bytes of the one that is stored (clause E1): an event without the
// member "format" is of this one, and one with it is of a newer.
const EventFormat = 1

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

// DecodeEvent reads an event. Damaged bytes wrap ErrInvalidEvent; a newer format, unknown
// members and unknown event types, which a newer build wrote, answer *FormatError. raw is not retained.
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
