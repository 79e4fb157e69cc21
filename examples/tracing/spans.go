//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// span is what is drawn of one that was exported.
type span struct {
	Name        string
	SpanContext identity
	Parent      identity
	Links       []struct{ SpanContext identity }
	StartTime   time.Time
	Attributes  []attr
	Resource    []attr
}

type identity struct{ TraceID, SpanID string }

type attr struct {
	Key   string
	Value struct{ Value any }
}

func (s span) attribute(key string) string {
	for _, a := range append(slices.Clone(s.Attributes), s.Resource...) {
		if a.Key == key {
			return fmt.Sprint(a.Value.Value)
		}
	}
	return ""
}

// process is the name of the one that exported the span.
func (s span) process() string { return s.attribute("service.instance.id") }

func readSpans(from io.Reader) (spans []span, err error) {
	in := json.NewDecoder(from)
	for {
		var s span
		if err := in.Decode(&s); errors.Is(err, io.EOF) {
			return spans, nil
		} else if err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
}

// draw draws the spans as trees, in the order they began in.
func draw(out io.Writer, spans []span) {
	slices.SortStableFunc(spans, func(a, b span) int { return a.StartTime.Compare(b.StartTime) })
	known := map[string]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID] = true
	}
	var below func(parent string, depth int)
	line := func(s span, depth int) {
		fmt.Fprintf(out, "%-40s %-7s %s\n", strings.Repeat("  ", depth)+s.Name, s.process(), s.attribute("belay.claim.kind"))
		below(s.SpanContext.SpanID, depth+1)
	}
	below = func(parent string, depth int) {
		for _, s := range spans {
			if s.Parent.SpanID == parent {
				line(s, depth)
			}
		}
	}
	for _, s := range spans {
		if !known[s.Parent.SpanID] {
			line(s, 0)
		}
	}
}
