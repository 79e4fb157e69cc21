package backend

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// EventRow is a row of a run's history as stores keep it: one event, or several of one commit that
// follow each other without a gap, in a body of their own form. Readers take both forms, in any
// mixture.
//
// The body of several is a JSON array of the first one's sequence and the events' canonical contents:
//
//	[7,{"at":…,"seq":7,…},{"at":…,"seq":8,…}]
//
// A Sealer is given all of that as one payload, of the last event's place; what it makes stands
// behind the first one's sequence, which stays readable: [7, and then the envelope.
type EventRow struct {
	// Seq is the sequence of the row's last event, which is what the row is kept under, and First
	// that of its first. Rows of a run do not overlap.
	Seq, First int64
	// CheckpointID is the commit's, when its closing event is in the row; else empty.
	CheckpointID checkpoint.ID
	Body         []byte
	// Digest tells whether another event equals a single one that is sealed. It is nil for what is
	// plain, and for several.
	Digest []byte
}

const (
	// fullRow is the size from which on a row takes no more events, so that reading one of them does
	// not read thousands.
	fullRow = 64 << 10
	// EventRowHead is how much of a body FirstEvent reads.
	EventRowHead = len("[,") + 20
)

// PackEvents makes rows of a commit's events, which are ascending and of one run. The write format is that of
// documents: in format 1, which releases read that know rows of one event only, each has a row of its own.
// *SealingError, or run.ErrInvalidEvent.
func PackEvents(s Sealer, owner Owner, id checkpoint.ID, events []run.Event, format int) ([]EventRow, error) {
	if len(events) == 0 {
		return nil, nil
	}
	single, most := format == 1, 1
	size := 32
	for i := range events {
		size += 224 + len(events[i].Data)
	}
	if single {
		most = len(events)
	}
	b, rows := make([]byte, 0, size), make([]EventRow, 0, most)
	for len(events) > 0 {
		row := EventRow{First: events[0].Seq}
		start, n, body := len(b), 0, 0
		b = strconv.AppendInt(append(b, '['), row.First, 10)
		for n == 0 || n < len(events) && !single && events[n].Seq == row.Seq+1 && len(b)-start < fullRow {
			b = append(b, ',')
			if n == 0 {
				body = len(b)
			}
			var err error
			if b, err = run.AppendEvent(b, &events[n]); err != nil {
				return nil, err
			}
			if events[n].Type == run.EventCheckpointCommitted {
				row.CheckpointID = id
			}
			row.Seq = events[n].Seq
			n++
		}
		head := 0
		if n > 1 {
			b = append(b, ']')
			head, body = body-start, start
		}
		if row.Body = b[body:len(b):len(b)]; s != nil {
			if err := sealRow(s, owner, events[0].Run, &row, head); err != nil {
				return nil, err
			}
		}
		rows, events = append(rows, row), events[n:]
	}
	return rows, nil
}

// sealRow seals a row whose head, of so many bytes, stays readable.
func sealRow(s Sealer, owner Owner, id string, row *EventRow, head int) (err error) {
	plain := row.Body
	if head == 0 {
		row.Body, row.Digest, err = sealEvent(s, owner, id, row.Seq, plain)
		return err
	}
	at := Place{Owner: owner, Run: id, Payload: EventPayload, Seq: row.Seq}
	key, err := currentKey(s, at)
	if err != nil || key == "" {
		return err
	}
	sealed, err := seal(s, key, at, plain)
	if err != nil {
		return err
	}
	row.Body = append(plain[:head:head], sealed...)
	return nil
}

// FirstEvent is the sequence of the first event of a stored row, by its own and the head of its
// body, or all of it: *CorruptError. Nothing has to be opened for it.
func FirstEvent(id string, seq int64, head []byte) (int64, error) {
	first, _, err := rowHead(seq, head)
	if err != nil {
		return 0, corrupt(Place{Run: id, Payload: EventPayload, Seq: seq}, err)
	}
	return first, nil
}

// rowHead reads the head of a row of several events, which is so many bytes long: 0 for one event.
func rowHead(seq int64, stored []byte) (first int64, head int, err error) {
	if len(stored) == 0 || stored[0] != '[' {
		return seq, 0, nil
	}
	end := bytes.IndexByte(stored[:min(len(stored), EventRowHead)], ',')
	if end < 0 {
		return 0, 0, errors.New("its row does not say where it begins")
	}
	digits := string(stored[1:end])
	first, err = strconv.ParseInt(digits, 10, 64)
	if err != nil || digits != strconv.FormatInt(first, 10) || first < 1 {
		return 0, 0, errors.New("its row does not say where it begins")
	}
	if first >= seq {
		return 0, 0, fmt.Errorf("its row holds several events and begins with event %d", first)
	}
	return first, end + 1, nil
}

// rowOf is a row's plain content: open opens an envelope.
func rowOf(seq int64, stored []byte, open func([]byte) ([]byte, error)) (r packedRow, err error) {
	first, head, err := rowHead(seq, stored)
	if err != nil {
		return r, err
	}
	r = packedRow{first: first, last: seq, several: head > 0}
	if r.rest, err = open(stored[head:]); err != nil {
		return r, err
	}
	if r.several && bytes.HasPrefix(stored[head:], []byte(envelopeMagic)) {
		same := false
		if r.rest, same = bytes.CutPrefix(r.rest, stored[:head]); !same {
			return r, errors.New("its row was sealed with another beginning")
		}
	}
	return r, nil
}

// packedRow is the plain content of a row, of which rest is still to be read.
type packedRow struct {
	first, last int64
	several     bool
	rest        []byte
}

// each lends the events' contents, in their order; what is wrong with the row is its last answer.
func (r packedRow) each(yield func(seq int64, content []byte, err error) bool) {
	if !r.several {
		yield(r.last, r.rest, nil)
		return
	}
	for seq := r.first; ; seq++ {
		end := contentEnd(r.rest)
		if end == 0 {
			yield(seq, nil, errors.New("its row is damaged"))
			return
		}
		content, closes := r.rest[:end:end], r.rest[end] == ']'
		r.rest = r.rest[end+1:]
		switch {
		case closes && len(r.rest) > 0:
			yield(seq, nil, errors.New("something follows its row"))
			return
		case closes != (seq == r.last):
			yield(seq, nil, fmt.Errorf("its row does not hold the events %d to %d", r.first, r.last))
			return
		}
		if !yield(seq, content, nil) || closes {
			return
		}
	}
}

// contentEnd is where the object that b begins with ends, before what parts it from the next: 0
// when it does not.
func contentEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			return i
		case c == '}' || c == ']':
			depth--
		}
	}
	return 0
}

// OpenEvents are the events of a stored row that come after a sequence, ascending. An error is the
// last answer: *CorruptError, *SealedError or *SealingError.
func OpenEvents(s Sealer, owner Owner, id string, seq int64, stored []byte, after int64) iter.Seq2[run.Event, error] {
	at := Place{Owner: owner, Run: id, Payload: EventPayload, Seq: seq}
	return func(yield func(run.Event, error) bool) {
		r, err := openRow(s, at, stored)
		if err != nil {
			yield(run.Event{}, err)
			return
		}
		r.each(func(seq int64, content []byte, err error) bool {
			if err == nil && seq <= after {
				return true
			}
			var e run.Event
			if err == nil {
				e, err = eventOf(id, seq, content)
			}
			if err != nil {
				at.Seq = seq
				yield(run.Event{}, corrupt(at, err))
				return false
			}
			return yield(e, nil)
		})
	}
}

func openRow(s Sealer, at Place, stored []byte) (packedRow, error) {
	r, err := rowOf(at.Seq, stored, func(stored []byte) ([]byte, error) { return open(s, at, stored) })
	if err != nil && !isOpening(err) {
		err = corrupt(at, err)
	}
	return r, err
}

// isOpening reports whether an error is one of open's.
func isOpening(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrSealed) || errors.Is(err, ErrSealing)
}

func eventOf(id string, seq int64, content []byte) (run.Event, error) {
	e, err := run.DecodeEvent(content)
	if err == nil && (e.Run != id || e.Seq != seq) {
		err = fmt.Errorf("it is event %d of run %s", e.Seq, e.Run)
	}
	return e, err
}

// EventAt is the event of a stored row that has a sequence, nil when the row has none: the row lies behind
// it. *CorruptError, *SealedError or *SealingError.
func EventAt(s Sealer, owner Owner, id string, row int64, stored []byte, seq int64) (*run.Event, error) {
	first, err := FirstEvent(id, row, stored)
	if err != nil || first > seq {
		return nil, err
	}
	for e, err := range OpenEvents(s, owner, id, row, stored, seq-1) {
		if err != nil {
			return nil, err
		}
		return &e, nil
	}
	return nil, nil
}

// NewEvents are those of events, ascending and of one run, that a stored row does not hold. One that it
// holds with the same content is stored already, whichever of the two is sealed and under whichever
// key; one with other content is ErrEventConflict (clause E1). Of the row, Seq, Body and Digest are
// read. *CorruptError, *SealedError or *SealingError.
func NewEvents(s Sealer, owner Owner, row EventRow, events []run.Event) (left []run.Event, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	id := events[0].Run
	first, err := FirstEvent(id, row.Seq, row.Body)
	if err != nil {
		return nil, err
	}
	from := 0
	for from < len(events) && events[from].Seq < first {
		from++
	}
	to := from
	for to < len(events) && events[to].Seq <= row.Seq {
		to++
	}
	if from == to {
		return events, nil
	}
	if err := holds(s, owner, id, row, events[from:to]); err != nil {
		return nil, err
	}
	return append(append(make([]run.Event, 0, len(events)), events[:from]...), events[to:]...), nil
}

// holds reports by its error whether a row holds the given events, all of its range, with the same content.
func holds(s Sealer, owner Owner, id string, row EventRow, events []run.Event) error {
	if len(row.Body) == 0 || row.Body[0] != '[' {
		plain, err := run.EncodeEvent(events[0])
		if err != nil {
			return err
		}
		same, err := sameStoredEvent(s, owner, id, row.Seq, row.Body, row.Digest, plain)
		if err == nil && !same {
			err = EventConflict(row.Seq)
		}
		return err
	}
	at := Place{Owner: owner, Run: id, Payload: EventPayload, Seq: row.Seq}
	r, err := openRow(s, at, row.Body)
	if err != nil {
		return err
	}
	var plain []byte
	r.each(func(seq int64, content []byte, wrong error) bool {
		switch {
		case wrong != nil:
			at.Seq = seq
			err = corrupt(at, wrong)
			return false
		case seq < events[0].Seq:
			return true
		}
		if plain, err = run.AppendEvent(plain[:0], &events[0]); err == nil && !bytes.Equal(plain, content) {
			err = EventConflict(seq)
		}
		events = events[1:]
		return err == nil && len(events) > 0
	})
	return err
}
