package run_test

import (
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/run"
)

// history is what the events alone say about a run.
type history struct {
	Versions   map[string]int64
	Edges      map[string]int64
	Completed  map[string]int64
	Interrupts map[string]run.InterruptStatus
	Facts      map[string]bool // a node's fact is told once for each attempt or wait
	Terminal   run.EventType
}

func newHistory() *history {
	return &history{
		Versions: map[string]int64{}, Edges: map[string]int64{}, Completed: map[string]int64{},
		Interrupts: map[string]run.InterruptStatus{}, Facts: map[string]bool{},
	}
}

func (h *history) add(t rapid.TB, p run.Proposal) {
	t.Helper()
	for _, e := range p.Events {
		if h.Terminal != "" {
			t.Fatalf("%s after %s", e.Type, h.Terminal)
		}
		switch e.Type {
		case run.EventNodeCompleted, run.EventNodeSkipped:
			h.Completed[e.Node]++
		case run.EventNodeFailed:
			fact := e.Task + "/" + string(e.Type) + "/" + string(rune('0'+e.Attempt))
			if h.Facts[fact] {
				t.Fatalf("attempt %d of %s failed twice", e.Attempt, e.Task)
			}
			h.Facts[fact] = true
		case run.EventStateUpdated:
			if e.Version != h.Versions[e.Field]+1 {
				t.Fatalf("%s goes from version %d to %d", e.Field, h.Versions[e.Field], e.Version)
			}
			h.Versions[e.Field] = e.Version
		case run.EventEdgeFired:
			h.Edges[e.Edge]++
		case run.EventInterruptRequested:
			h.move(t, e, "", run.InterruptOpen)
		case run.EventInterruptResolved:
			h.move(t, e, run.InterruptOpen, run.InterruptResolved)
		case run.EventInterruptClosed:
			h.move(t, e, run.InterruptOpen, run.InterruptClosed)
		}
	}
	for _, e := range p.Events {
		switch e.Type {
		case run.EventRunCompleted, run.EventRunFailed, run.EventRunCancelled:
			h.Terminal = e.Type
		}
	}
}

func (h *history) move(t rapid.TB, e run.Event, from, to run.InterruptStatus) {
	t.Helper()
	if h.Interrupts[e.Interrupt] != from {
		t.Fatalf("%s of an interrupt that is %q", e.Type, h.Interrupts[e.Interrupt])
	}
	h.Interrupts[e.Interrupt] = to
}

// compare says where the document and its events differ.
func (h *history) compare(t rapid.TB, d *run.Document) {
	t.Helper()
	is := newHistory()
	for _, c := range d.State {
		if c.Version > 0 {
			is.Versions[c.Name] = c.Version
		}
	}
	for _, e := range d.Edges {
		is.Edges[e.Edge] = e.Fired
	}
	for _, c := range d.Completed {
		is.Completed[c.Node] = c.Count
	}
	for _, w := range d.Writes {
		is.Completed[w.Node]++
	}
	for _, i := range d.Interrupts {
		is.Interrupts[i.ID] = i.Status
	}
	if d.Status.Terminal() {
		is.Terminal = map[run.Status]run.EventType{
			run.Done: run.EventRunCompleted, run.Failed: run.EventRunFailed, run.Cancelled: run.EventRunCancelled,
		}[d.Status]
	}
	want := *h
	want.Facts, is.Facts = nil, nil
	// A run that ends drops the completions that were held back for a barrier.
	if d.Status == run.Failed || d.Status == run.Cancelled {
		for _, node := range slices.Sorted(maps.Keys(want.Completed)) {
			if is.Completed[node] > want.Completed[node] || is.Completed[node] < want.Completed[node]-1 {
				t.Fatalf("%s completed %d times, and the events tell %d", node, is.Completed[node], want.Completed[node])
			}
		}
		want.Completed, is.Completed = nil, nil
	}
	if diff := cmp.Diff(&want, is); diff != "" {
		t.Fatalf("events and document tell different things (-events +document):\n%s", diff)
	}
}
