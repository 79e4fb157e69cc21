package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// decoder reads what encoder wrote, strictly. The first error sticks, and every
// method after it does nothing, so that callers check once at the end.
type decoder struct {
	*reader
	raw     []byte // nobody else's; values are cut out of it
	err     error
	unknown string // the first member this build does not know
}

// reader is what reads tokens, and is used again, since it makes much for itself.
type reader struct {
	dec    jsontext.Decoder
	buffer bytes.Buffer
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func newDecoder(raw []byte) *decoder { return decoderOf(bytes.Clone(raw)) }

// decoderOf reads bytes that nobody else holds. It is to be freed.
func decoderOf(raw []byte) *decoder {
	r := &decoder{reader: readers.Get().(*reader), raw: raw}
	r.buffer = *bytes.NewBuffer(raw)
	r.dec.Reset(&r.buffer)
	return r
}

// free gives the reader back. What was read stays, since it is cut out of raw, or a copy.
func (r *decoder) free() {
	r.buffer = bytes.Buffer{}
	r.dec.Reset(&r.buffer) // it must not keep the bytes
	readers.Put(r.reader)
	r.reader = nil
}

func (r *decoder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// value reads any JSON value; the result is a part of raw.
func (r *decoder) value() value.Value {
	if r.err != nil {
		return nil
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		r.err = err
		return nil
	}
	end := int(r.dec.InputOffset())
	return value.Value(r.raw[end-len(v) : end : end])
}

// open and shut read the brackets of an object or an array.
func (r *decoder) open(kind jsontext.Kind, what string) bool {
	if r.err != nil {
		return false
	}
	if got := r.dec.PeekKind(); got != kind {
		if got == 0 {
			_, r.err = r.dec.ReadToken()
			return false
		}
		r.fail("%s expected, found %s", what, got)
		return false
	}
	_, r.err = r.dec.ReadToken()
	return r.err == nil
}

func (r *decoder) more(end jsontext.Kind) bool {
	if r.err != nil {
		return false
	}
	if r.dec.PeekKind() != end {
		return true
	}
	_, r.err = r.dec.ReadToken()
	return false
}

// object calls member with each name; member reads the value, and answers false
// for a name it does not know.
func (r *decoder) object(member func(name []byte) bool) {
	if !r.open('{', "an object") {
		return
	}
	for r.more('}') {
		name := r.value()
		if r.err != nil {
			return
		}
		name = name[1 : len(name)-1]
		if member(name) {
			continue
		}
		if r.unknown == "" {
			r.unknown = string(name)
		}
		r.value()
	}
}

func list[T any](r *decoder, each func(*decoder) T) []T {
	if !r.open('[', "a list") {
		return nil
	}
	var out []T
	for r.more(']') {
		out = append(out, each(r))
	}
	return out
}

// members reads an object whose names are free; each reads what belongs to one.
func members[T any](r *decoder, each func(r *decoder, name string) T) []T {
	if !r.open('{', "an object") {
		return nil
	}
	var out []T
	for r.more('}') {
		out = append(out, each(r, r.text()))
	}
	return out
}

func (r *decoder) text() string {
	v := r.value()
	if r.err != nil {
		return ""
	}
	if v[0] != '"' {
		r.fail("a string expected, found %.20s", v)
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		r.err = err
	}
	return string(s)
}

func (r *decoder) int() int64 {
	v := r.value()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		r.fail("an integer expected, found %.20s", v)
	}
	return n
}

func (r *decoder) true() bool {
	v := r.value()
	if r.err == nil && string(v) != "true" {
		r.fail("true expected, found %.20s", v)
	}
	return true
}

func (r *decoder) time() time.Time {
	v := r.value()
	if r.err != nil {
		return time.Time{}
	}
	if t, ok := parseInstant(v); ok {
		return t
	}
	if v[0] != '"' {
		r.fail("a string expected, found %.20s", v)
		return time.Time{}
	}
	unquoted, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		r.err = err
		return time.Time{}
	}
	s := string(unquoted)
	t, err := time.Parse(wire, s)
	if err != nil || len(s) != len(wire) {
		r.fail("an instant such as %s expected, found %.40q", wire, s)
	}
	return t
}

// parseInstant reads a quoted instant as encoder writes it, and reports false for whatever else
// time.Parse is to judge.
func parseInstant(quoted []byte) (time.Time, bool) {
	const form = `"` + wire + `"`
	if len(quoted) != len(form) {
		return time.Time{}, false
	}
	var parts [7]int
	part := 0
	for i, c := range quoted {
		switch digit, want := c-'0', form[i]; {
		case digit <= 9 && '0' <= want && want <= '9':
			parts[part] = 10*parts[part] + int(digit)
		case c != want || '0' <= want && want <= '9':
			return time.Time{}, false
		case i > 0 && part < len(parts)-1:
			part++
		}
	}
	year, month, day := parts[0], time.Month(parts[1]), parts[2]
	hour, minute, second, micros := parts[3], parts[4], parts[5], parts[6]
	if hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	t := time.Date(year, month, day, hour, minute, second, 1000*micros, time.UTC)
	if y, m, d := t.Date(); y != year || m != month || d != day {
		return time.Time{}, false
	}
	return t, true
}

// envelope reads the format number, which comes first, and gives the "run" member
// to body, unless the format is one this build does not know.
func (r *decoder) envelope(body func(format int)) error {
	if !r.open('{', "an object") {
		return r.damaged()
	}
	if name := r.value(); r.err != nil || string(name) != `"format"` {
		r.fail("the envelope does not begin with its format")
		return r.damaged()
	}
	format := r.int()
	switch {
	case r.err != nil:
		return r.damaged()
	case format < 1:
		r.fail("there is no format %d", format)
		return r.damaged()
	case format > Format:
		return &FormatError{Format: int(format), Reason: fmt.Sprintf("this build reads up to format %d", Format)}
	}
	if name := r.value(); r.err != nil || string(name) != `"run"` {
		r.fail("the envelope holds no run")
		return r.damaged()
	}
	body(int(format))
	if r.more('}') {
		return &FormatError{Format: int(format), Reason: "the envelope has a member this build does not know"}
	}
	r.finish("the document")
	switch {
	case r.err != nil:
		return r.damaged()
	case r.unknown != "":
		return &FormatError{Format: int(format), Reason: "the document has the unknown member " + strconv.Quote(r.unknown)}
	}
	return nil
}

func (r *decoder) damaged() error { return invalid("damaged: %v", r.err) }

// finish makes sure that nothing follows.
func (r *decoder) finish(what string) {
	if r.err != nil {
		return
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		r.fail("something follows %s", what)
	}
}
