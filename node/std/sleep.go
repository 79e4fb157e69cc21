package std

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

const sleepConfigSchema = `{
  "type": "object",
  "description": "Waits, and holds nothing meanwhile: the run is parked until then.",
  "additionalProperties": false,
  "oneOf": [{"required": ["for"]}, {"required": ["until"]}],
  "properties": {
    "for": {"type": "string", "minLength": 1, "description": "How long, as in 90s or 24h, counted from when the task was first planned."},
    "until": {"type": "string", "minLength": 1, "description": "An instant, as in 2030-01-31T08:00:00Z."}
  }
}`

// sleepType snoozes until planned-at plus a duration, or until an instant, and then
// completes. One that has passed completes at once.
func sleepType() node.Type {
	return newType(graph.NodeType{
		Name: "sleep", Version: 1, OpenReads: true, Config: value.Value(sleepConfigSchema),
	}, func(config value.Value, names scope, _ []string) (node.Func, error) {
		var in struct {
			For   string `json:"for"`
			Until string `json:"until"`
		}
		if err := json.Unmarshal(config, &in); err != nil {
			return nil, err
		}
		end, err := names.instant(in.Until, "/until", at8601)
		if in.For != "" {
			end, err = names.instant(in.For, "/for", afterPlanned)
		}
		if err != nil {
			return nil, err
		}
		return func(_ context.Context, call *node.Call) (map[string]value.Value, error) {
			until, err := end.of(call)
			if err != nil {
				return nil, err
			}
			if call.Now().Before(until) {
				return nil, node.Snooze(until)
			}
			return nil, nil
		}, nil
	})
}

// instant is a template that says when.
type instant struct {
	text template
	read reader
}

// reader reads an instant from a text, given when the task was first planned.
type reader func(text string, planned time.Time) (time.Time, error)

func afterPlanned(text string, planned time.Time) (time.Time, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return time.Time{}, errors.New("it is not a duration: write one as in 90s, 1h30m or 24h")
	}
	return planned.Add(d), nil
}

func at8601(text string, _ time.Time) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.IsZero() {
		return time.Time{}, errors.New("it is not an instant: write one as in 2030-01-31T08:00:00Z")
	}
	return t, nil
}

func eitherWay(text string, planned time.Time) (time.Time, error) {
	if t, err := afterPlanned(text, planned); err == nil {
		return t, nil
	}
	if t, err := at8601(text, planned); err == nil {
		return t, nil
	}
	return time.Time{}, errors.New("it is neither a duration nor an instant: write 24h or 2030-01-31T08:00:00Z")
}

// instant compiles a string that says when; one without expressions is read at once.
func (s scope) instant(text, path string, read reader) (instant, error) {
	t, err := s.template(text, path)
	if err != nil {
		return instant{}, err
	}
	if text, ok := t.literal(); ok {
		if _, err := read(text, time.Time{}); err != nil {
			return instant{}, at(path, err)
		}
	}
	return instant{text: t, read: read}, nil
}

func (i instant) of(call *node.Call) (time.Time, error) {
	text, err := i.text.text(call.Reads)
	if err != nil {
		return time.Time{}, err
	}
	t, err := i.read(text, call.PlannedAt)
	if err != nil {
		return time.Time{}, node.Permanent(fmt.Errorf("config%s: %w", i.text.path, err))
	}
	return t, nil
}
