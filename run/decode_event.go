package run

import (
	"fmt"
	"strconv"

	"github.com/belay-run/belay/checkpoint"
)

func decodeEvent(raw []byte) (Event, error) {
	r := newDecoder(raw)
	defer r.free()
	var e Event
	format := int64(0) // EventFormat, which is not written
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
		case "format":
			if format = r.int(); format <= EventFormat {
				r.fail("an event of format %d does not say so", format)
			}
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
	case r.err == nil && format > EventFormat:
		return Event{}, &FormatError{Format: int(format), Reason: fmt.Sprintf("this build reads events up to format %d", EventFormat)}
	case r.err != nil:
		return Event{}, fmt.Errorf("%w: damaged: %w", ErrInvalidEvent, r.err)
	case r.unknown != "":
		return Event{}, &FormatError{Format: EventFormat, Reason: "the event has the unknown member " + strconv.Quote(r.unknown)}
	case e.Type != "" && !e.Type.Valid():
		return Event{}, &FormatError{Format: EventFormat, Reason: "the event has the unknown type " + strconv.Quote(string(e.Type))}
	}
	return e, nil
}
