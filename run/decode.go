package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// decoder reads what encoder wrote, strictly. The first error sticks, and every
// method after it does nothing, so that callers check once at the end.
type decoder struct {
	dec     *jsontext.Decoder
	raw     []byte // nobody else's; values are cut out of it
	err     error
	unknown string // the first member this build does not know
}

func newDecoder(raw []byte) *decoder { return decoderOf(bytes.Clone(raw)) }

// decoderOf reads bytes that nobody else holds.
func decoderOf(raw []byte) *decoder {
	return &decoder{dec: jsontext.NewDecoder(bytes.NewBuffer(raw)), raw: raw}
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
	s := r.text()
	if r.err != nil {
		return time.Time{}
	}
	t, err := time.Parse(wire, s)
	if err != nil || len(s) != len(wire) {
		r.fail("an instant such as %s expected, found %.40q", wire, s)
	}
	return t
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
