package backend

import (
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Sizes are limited as they are encoded, but encoding only to measure would cost every
// commit more than all its other checks. So a bound is computed first, from above, and
// only what may be over the limit is encoded.

const (
	// escaped is the most bytes that encoding makes of one.
	escaped = 6
	// perElement bounds the field names, punctuation, numbers and instants of one
	// encoded element, the document and the event included.
	perElement = 1 << 10
)

func checkDocumentSize(d *run.Document, limits value.Limits) error {
	if documentBound(d) <= limits.Document {
		return nil
	}
	raw, err := run.Encode(d)
	if err != nil {
		return err
	}
	return value.Check("document", len(raw), limits.Document)
}

func checkEventSize(e *run.Event, limits value.Limits) error {
	if eventBound(e) <= limits.EventPayload {
		return nil
	}
	raw, err := run.EncodeEvent(*e)
	if err != nil {
		return err
	}
	return value.Check("event payload", len(raw), limits.EventPayload)
}

// documentBound is not less than the size of the encoded document.
func documentBound(d *run.Document) int {
	b := bound{elements: 4}
	b.add(d.ID, d.Graph.ID, d.Graph.Hash, string(d.Status), d.Reason)
	b.bytes += len(d.Output)
	b.channels(d.Input)
	b.channels(d.State)
	b.failure(d.Failure)
	for i := range d.Edges {
		b.element(d.Edges[i].Edge)
	}
	for i := range d.Barriers {
		b.element(d.Barriers[i].Edge)
		b.list(d.Barriers[i].Sources)
	}
	b.list(d.Changed)
	b.list(d.Pending)
	for i := range d.Completed {
		b.element(d.Completed[i].Node)
	}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		b.element(t.ID, t.Node, t.LastError, t.InputHash, string(t.Reason))
		b.channels(t.Snapshot)
	}
	for i := range d.Writes {
		w := &d.Writes[i]
		b.element(w.Node, w.Reason)
		b.channels(w.Update)
	}
	for i := range d.Timers {
		b.element(string(d.Timers[i].Kind), d.Timers[i].Key)
	}
	for i := range d.Interrupts {
		in := &d.Interrupts[i]
		b.element(in.ID, in.Node, in.Field, string(in.Status))
		b.bytes += len(in.Question) + len(in.Schema) + len(in.Default) + len(in.Answer)
	}
	for k, v := range d.Metadata {
		b.element(k, v)
	}
	return b.total()
}

// eventBound is not less than the size of the encoded event.
func eventBound(e *run.Event) int {
	b := bound{elements: 1}
	b.add(e.Run, string(e.Type), e.Node, e.Task, e.Edge, e.Field, e.Interrupt, e.Reason, string(e.Checkpoint))
	b.bytes += len(e.Data)
	b.failure(e.Failure)
	return b.total()
}

// bound sums up what is encoded: bytes that may be escaped, and elements.
type bound struct{ bytes, elements int }

func (b *bound) add(texts ...string) {
	for _, t := range texts {
		b.bytes += len(t)
	}
}

func (b *bound) element(texts ...string) {
	b.elements++
	b.add(texts...)
}

func (b *bound) list(texts []string) {
	b.elements += len(texts)
	b.add(texts...)
}

func (b *bound) channels(cs []run.Channel) {
	for i := range cs {
		b.element(cs[i].Name)
		b.bytes += len(cs[i].Value)
	}
}

func (b *bound) failure(f *run.Failure) {
	if f != nil {
		b.element(f.Code, f.Message, f.Node)
		b.bytes += len(f.Details)
	}
}

func (b *bound) total() int { return escaped*b.bytes + perElement*b.elements }
