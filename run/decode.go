package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/checkpoint"
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

func (r *decoder) document() *Document {
	d := &Document{}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			d.ID = r.text()
		case "graph":
			r.object(func(name []byte) bool {
				switch string(name) {
				case "id":
					d.Graph.ID = r.text()
				case "hash":
					d.Graph.Hash = r.text()
				default:
					return false
				}
				return true
			})
		case "status":
			d.Status = Status(r.text())
		case "step":
			d.Step = r.int()
		case "seq":
			d.Seq = r.int()
		case "event_seq":
			d.EventSeq = r.int()
		case "started_at":
			d.StartedAt = r.time()
		case "updated_at":
			d.UpdatedAt = r.time()
		case "finished_at":
			d.FinishedAt = r.time()
		case "reason":
			d.Reason = r.text()
		case "failure":
			d.Failure = r.failure()
		case "output":
			d.Output = r.value()
		case "input":
			d.Input = members(r, (*decoder).channel)
		case "state":
			d.State = members(r, (*decoder).channel)
		case "changed":
			d.Changed = list(r, (*decoder).text)
		case "pending":
			d.Pending = list(r, (*decoder).text)
		case "completed":
			d.Completed = members(r, (*decoder).nodeCount)
		case "edges":
			d.Edges = members(r, (*decoder).edgeCount)
		case "barriers":
			d.Barriers = members(r, (*decoder).barrier)
		case "tasks":
			d.Tasks = list(r, (*decoder).task)
		case "writes":
			d.Writes = list(r, (*decoder).write)
		case "timers":
			d.Timers = list(r, (*decoder).timer)
		case "interrupts":
			d.Interrupts = list(r, (*decoder).interrupt)
		case "metadata":
			d.Metadata = r.metadata()
		default:
			return false
		}
		return true
	})
	return d
}

func (r *decoder) metadata() map[string]string {
	var m map[string]string
	members(r, func(r *decoder, name string) struct{} {
		if m == nil {
			m = map[string]string{}
		}
		m[name] = r.text()
		return struct{}{}
	})
	return m
}

func (r *decoder) failure() *Failure {
	f := &Failure{}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "code":
			f.Code = r.text()
		case "details":
			f.Details = r.value()
		case "message":
			f.Message = r.text()
		case "node":
			f.Node = r.text()
		default:
			return false
		}
		return true
	})
	return f
}

func (r *decoder) channel(name string) Channel {
	c := Channel{Name: name}
	r.object(func(name []byte) bool {
		switch string(name) {
		case "value":
			c.Value = r.value()
		case "version":
			c.Version = r.int()
		default:
			return false
		}
		return true
	})
	return c
}

func (r *decoder) nodeCount(node string) NodeCount { return NodeCount{Node: node, Count: r.int()} }

func (r *decoder) edgeCount(edge string) EdgeCount { return EdgeCount{Edge: edge, Fired: r.int()} }

func (r *decoder) barrier(edge string) Barrier {
	return Barrier{Edge: edge, Sources: list(r, (*decoder).text)}
}

func (r *decoder) task() (t Task) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			t.ID = r.text()
		case "node":
			t.Node = r.text()
		case "parked":
			t.Reason = ParkReason(r.text())
		case "failures":
			t.Failures = int(r.int())
		case "last_error":
			t.LastError = r.text()
		case "planned_at":
			t.PlannedAt = r.time()
		case "input_hash":
			t.InputHash = r.text()
		case "snapshot":
			t.Snapshot = members(r, (*decoder).channel)
		default:
			return false
		}
		return true
	})
	return t
}

func (r *decoder) write() (w Write) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "node":
			w.Node = r.text()
		case "skipped":
			w.Skipped = r.true()
		case "reason":
			w.Reason = r.text()
		case "update":
			w.Update = members(r, (*decoder).channel)
		default:
			return false
		}
		return true
	})
	return w
}

func (r *decoder) timer() (t Timer) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "kind":
			t.Kind = TimerKind(r.text())
		case "key":
			t.Key = r.text()
		case "at":
			t.At = r.time()
		default:
			return false
		}
		return true
	})
	return t
}

func (r *decoder) interrupt() (i Interrupt) {
	r.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			i.ID = r.text()
		case "node":
			i.Node = r.text()
		case "status":
			i.Status = InterruptStatus(r.text())
		case "requested_at":
			i.RequestedAt = r.time()
		case "resolved_at":
			i.ResolvedAt = r.time()
		case "deadline":
			i.Deadline = r.time()
		case "field":
			i.Field = r.text()
		case "question":
			i.Question = r.value()
		case "schema":
			i.Schema = r.value()
		case "default":
			i.Default = r.value()
		case "answer":
			i.Answer = r.value()
		default:
			return false
		}
		return true
	})
	return i
}

func decodeEvent(raw []byte) (Event, error) {
	r := newDecoder(raw)
	var e Event
	r.object(func(name []byte) bool {
		switch string(name) {
		case "at":
			e.At = r.time()
		case "attempt":
			e.Attempt = int(r.int())
		case "checkpoint":
			e.Checkpoint = checkpoint.Type(r.text())
		case "checkpoint_seq":
			e.Commit = r.int()
		case "data":
			e.Data = r.value()
		case "edge":
			e.Edge = r.text()
		case "failure":
			e.Failure = r.failure()
		case "field":
			e.Field = r.text()
		case "interrupt":
			e.Interrupt = r.text()
		case "node":
			e.Node = r.text()
		case "reason":
			e.Reason = r.text()
		case "run":
			e.Run = r.text()
		case "seq":
			e.Seq = r.int()
		case "step":
			e.Step = r.int()
		case "task":
			e.Task = r.text()
		case "type":
			e.Type = EventType(r.text())
		case "version":
			e.Version = r.int()
		case "wake":
			e.Wake = r.time()
		default:
			return false
		}
		return true
	})
	r.finish("the event")
	switch {
	case r.err != nil:
		return Event{}, fmt.Errorf("%w: damaged: %w", ErrInvalidEvent, r.err)
	case r.unknown != "":
		return Event{}, &FormatError{Format: Format, Reason: "the event has the unknown member " + strconv.Quote(r.unknown)}
	case e.Type != "" && !e.Type.Valid():
		return Event{}, &FormatError{Format: Format, Reason: "the event has the unknown type " + strconv.Quote(string(e.Type))}
	}
	return e, nil
}
