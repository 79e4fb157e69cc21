package memory

import (
	"cmp"
	"slices"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// history is what the commits of a run left behind, the insert first: their ids and their
// events. It only grows, and what is there is not modified, so that snapshots share it.
type history []part

// part is what one commit left behind.
type part struct {
	commit checkpoint.ID
	events []run.Event // ascending; all after those of earlier parts
	last   int64       // the last event's sequence, of this part and those before it
}

// holds reports whether a checkpoint id is stored, beside whichever commit.
func (h history) holds(id checkpoint.ID) bool {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].commit == id {
			return true
		}
	}
	return false
}

// grown is h with one commit more. The events ascend; those that are stored already are
// left out, and other ones under the same sequence are a conflict (clause E1).
func (h history) grown(id checkpoint.ID, events []run.Event) (history, error) {
	if len(events) == 0 {
		return append(h, part{commit: id, last: h.last()}), nil
	}
	if events[0].Seq > h.last() {
		return append(h, part{commit: id, events: events, last: events[len(events)-1].Seq}), nil
	}
	// They fill gaps, or are stored already. One part takes all events, so that parts
	// stay in order.
	all := h.after(0, h.count())
	for _, e := range events {
		i, found := findEvent(all, e.Seq)
		if !found {
			all = slices.Insert(all, i, e)
			continue
		}
		same, err := backend.SameEvent(all[i], e)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, backend.EventConflict(e.Seq)
		}
	}
	grown := make(history, 0, len(h)+1)
	for _, p := range h {
		grown = append(grown, part{commit: p.commit})
	}
	return append(grown, part{commit: id, events: all, last: all[len(all)-1].Seq}), nil
}

// last is the last event's sequence; 0 without events.
func (h history) last() int64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].last
}

// oldest is the first event's sequence; 0 without events.
func (h history) oldest() int64 {
	for _, p := range h {
		if len(p.events) > 0 {
			return p.events[0].Seq
		}
	}
	return 0
}

func (h history) count() (n int) {
	for _, p := range h {
		n += len(p.events)
	}
	return n
}

// after copies up to n events after a sequence.
func (h history) after(seq int64, n int) []run.Event {
	from, _ := slices.BinarySearchFunc(h, seq, func(p part, seq int64) int {
		return cmp.Compare(p.last, seq+1)
	})
	var events []run.Event
	for _, p := range h[from:] {
		i, _ := findEvent(p.events, seq+1)
		events = append(events, p.events[i:min(len(p.events), i+n-len(events))]...)
		if len(events) == n {
			break
		}
	}
	return events
}

// findEvent is where an event with the sequence stands, or would.
func findEvent(events []run.Event, seq int64) (int, bool) {
	return slices.BinarySearchFunc(events, seq, func(e run.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
}
