package run

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// encoder appends JSON without reflection. Every object begins with a member that
// is always there, so that each optional one brings its own comma.
type encoder struct {
	b   []byte
	bad string // what could not be written
}

// raw appends what is JSON already: punctuation with member names, or a value.
func (e *encoder) raw(s string) { e.b = append(e.b, s...) }

func (e *encoder) text(s string) {
	var err error
	if e.b, err = jsontext.AppendQuote(e.b, s); err != nil {
		e.bad = "text that is not UTF-8"
	}
}

func (e *encoder) int(n int64) { e.b = strconv.AppendInt(e.b, n, 10) }

// wire is how instants are written: RFC 3339 in UTC, always with microseconds.
const wire = "2006-01-02T15:04:05.000000Z"

func (e *encoder) time(t time.Time) {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	e.b = append(e.b, '"')
	e.digits(year, 4)
	e.b = append(e.b, '-')
	e.digits(int(month), 2)
	e.b = append(e.b, '-')
	e.digits(day, 2)
	e.b = append(e.b, 'T')
	e.digits(hour, 2)
	e.b = append(e.b, ':')
	e.digits(minute, 2)
	e.b = append(e.b, ':')
	e.digits(second, 2)
	e.b = append(e.b, '.')
	e.digits(t.Nanosecond()/1000, 6)
	e.b = append(e.b, 'Z', '"')
}

// digits writes n zero-padded to width.
func (e *encoder) digits(n, width int) {
	var d [6]byte
	for i := width - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	e.b = append(e.b, d[:width]...)
}

// The opt family writes a member unless it is empty; name has comma, quotes and colon.

func (e *encoder) optText(name, s string) {
	if s != "" {
		e.raw(name)
		e.text(s)
	}
}

func (e *encoder) optInt(name string, n int64) {
	if n != 0 {
		e.raw(name)
		e.int(n)
	}
}

func (e *encoder) optTime(name string, t time.Time) {
	if !t.IsZero() {
		e.raw(name)
		e.time(t)
	}
}

func (e *encoder) optValue(name string, v value.Value) {
	if v != nil {
		e.raw(name)
		e.b = append(e.b, v...)
	}
}

// optList writes a list member; each writes one element.
func optList[T any](e *encoder, name string, list []T, each func(*encoder, *T)) {
	optSeries(e, name, '[', list, each, ']')
}

// optMembers writes an object member; each writes one name and its value.
func optMembers[T any](e *encoder, name string, list []T, each func(*encoder, *T)) {
	optSeries(e, name, '{', list, each, '}')
}

func optSeries[T any](e *encoder, name string, open byte, list []T, each func(*encoder, *T), shut byte) {
	if len(list) == 0 {
		return
	}
	e.raw(name)
	e.b = append(e.b, open)
	for i := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		each(e, &list[i])
	}
	e.b = append(e.b, shut)
}

func (e *encoder) optChannels(name string, cs []Channel) {
	optMembers(e, name, cs, (*encoder).channel)
}

func (e *encoder) document(d *Document) {
	e.raw(`{"id":`)
	e.text(d.ID)
	e.raw(`,"graph":{"id":`)
	e.text(d.Graph.ID)
	e.raw(`,"hash":`)
	e.text(d.Graph.Hash)
	e.b = append(e.b, '}')
	optList(e, `,"lineage":`, d.Lineage, (*encoder).ancestor)
	e.raw(`,"status":`)
	e.text(string(d.Status))
	e.optInt(`,"step":`, d.Step)
	e.optInt(`,"seq":`, d.Seq)
	e.optInt(`,"event_seq":`, d.EventSeq)
	e.optTime(`,"started_at":`, d.StartedAt)
	e.optTime(`,"updated_at":`, d.UpdatedAt)
	e.optTime(`,"finished_at":`, d.FinishedAt)
	e.optText(`,"reason":`, d.Reason)
	if d.Failure != nil {
		e.raw(`,"failure":`)
		e.failure(d.Failure)
	}
	e.optValue(`,"output":`, d.Output)
	e.optChannels(`,"input":`, d.Input)
	e.optChannels(`,"state":`, d.State)
	optList(e, `,"changed":`, d.Changed, (*encoder).name)
	optList(e, `,"pending":`, d.Pending, (*encoder).name)
	optMembers(e, `,"renamed":`, d.Renamed, (*encoder).renaming)
	optMembers(e, `,"completed":`, d.Completed, (*encoder).nodeCount)
	optMembers(e, `,"edges":`, d.Edges, (*encoder).edgeCount)
	optMembers(e, `,"barriers":`, d.Barriers, (*encoder).barrier)
	optList(e, `,"tasks":`, d.Tasks, (*encoder).task)
	optList(e, `,"writes":`, d.Writes, (*encoder).write)
	optList(e, `,"timers":`, d.Timers, (*encoder).timer)
	optList(e, `,"interrupts":`, d.Interrupts, (*encoder).interrupt)
	if len(d.Metadata) > 0 {
		e.raw(`,"metadata":{`)
		for i, k := range slices.Sorted(maps.Keys(d.Metadata)) {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			e.text(k)
			e.b = append(e.b, ':')
			e.text(d.Metadata[k])
		}
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, '}')
}

func (e *encoder) name(s *string) { e.text(*s) }

func (e *encoder) ancestor(a *Ancestor) {
	e.raw(`{"hash":`)
	e.text(a.Hash)
	e.raw(`,"until":`)
	e.int(a.Until)
	e.b = append(e.b, '}')
}

func (e *encoder) renaming(r *Renaming) {
	e.text(r.Node)
	e.b = append(e.b, ':')
	e.text(r.Was)
}

func (e *encoder) failure(f *Failure) {
	e.raw(`{"code":`)
	e.text(f.Code)
	e.optValue(`,"details":`, f.Details)
	e.raw(`,"message":`)
	e.text(f.Message)
	e.optText(`,"node":`, f.Node)
	e.b = append(e.b, '}')
}

func (e *encoder) channel(c *Channel) {
	e.text(c.Name)
	e.raw(`:{"value":`)
	if len(c.Value) == 0 {
		e.bad = c.Name + " without a value"
	}
	e.b = append(e.b, c.Value...)
	e.optInt(`,"version":`, c.Version)
	e.b = append(e.b, '}')
}

func (e *encoder) nodeCount(c *NodeCount) {
	e.text(c.Node)
	e.b = append(e.b, ':')
	e.int(c.Count)
}

func (e *encoder) edgeCount(c *EdgeCount) {
	e.text(c.Edge)
	e.b = append(e.b, ':')
	e.int(c.Fired)
}

func (e *encoder) barrier(b *Barrier) {
	e.text(b.Edge)
	e.b = append(e.b, ':')
	if len(b.Sources) == 0 {
		e.bad = "the barrier " + b.Edge + " without a source"
	}
	optList(e, "", b.Sources, (*encoder).name)
}

func (e *encoder) task(t *Task) {
	e.raw(`{"id":`)
	e.text(t.ID)
	e.raw(`,"node":`)
	e.text(t.Node)
	e.raw(`,"parked":`)
	e.text(string(t.Reason))
	e.optInt(`,"failures":`, int64(t.Failures))
	e.optText(`,"last_error":`, t.LastError)
	e.optTime(`,"planned_at":`, t.PlannedAt)
	e.raw(`,"input_hash":`)
	e.text(t.InputHash)
	e.optChannels(`,"snapshot":`, t.Snapshot)
	e.b = append(e.b, '}')
}

func (e *encoder) write(w *Write) {
	e.raw(`{"node":`)
	e.text(w.Node)
	if w.Skipped {
		e.raw(`,"skipped":true`)
	}
	e.optText(`,"reason":`, w.Reason)
	e.optChannels(`,"update":`, w.Update)
	e.b = append(e.b, '}')
}

func (e *encoder) timer(t *Timer) {
	e.raw(`{"kind":`)
	e.text(string(t.Kind))
	e.raw(`,"key":`)
	e.text(t.Key)
	e.optTime(`,"at":`, t.At)
	e.b = append(e.b, '}')
}

func (e *encoder) interrupt(i *Interrupt) {
	e.raw(`{"id":`)
	e.text(i.ID)
	e.raw(`,"node":`)
	e.text(i.Node)
	e.raw(`,"status":`)
	e.text(string(i.Status))
	e.optTime(`,"requested_at":`, i.RequestedAt)
	e.optTime(`,"resolved_at":`, i.ResolvedAt)
	e.optTime(`,"deadline":`, i.Deadline)
	e.optText(`,"field":`, i.Field)
	e.optValue(`,"question":`, i.Question)
	e.optValue(`,"schema":`, i.Schema)
	e.optValue(`,"default":`, i.Default)
	e.optValue(`,"answer":`, i.Answer)
	e.b = append(e.b, '}')
}

// event writes the members in the order of canonical JSON.
func (e *encoder) event(v *Event) {
	e.raw(`{"at":`)
	e.time(v.At)
	e.optInt(`,"attempt":`, int64(v.Attempt))
	e.optText(`,"checkpoint":`, string(v.Checkpoint))
	e.optInt(`,"checkpoint_seq":`, v.Commit)
	e.optValue(`,"data":`, v.Data)
	e.optText(`,"edge":`, v.Edge)
	if v.Failure != nil {
		e.raw(`,"failure":`)
		e.failure(v.Failure)
	}
	e.optText(`,"field":`, v.Field)
	e.optText(`,"interrupt":`, v.Interrupt)
	e.optText(`,"node":`, v.Node)
	e.optText(`,"reason":`, v.Reason)
	e.raw(`,"run":`)
	e.text(v.Run)
	e.raw(`,"seq":`)
	e.int(v.Seq)
	e.raw(`,"step":`)
	e.int(v.Step)
	e.optText(`,"task":`, v.Task)
	e.raw(`,"type":`)
	e.text(string(v.Type))
	e.optInt(`,"version":`, v.Version)
	e.optTime(`,"wake":`, v.Wake)
	e.b = append(e.b, '}')
}
