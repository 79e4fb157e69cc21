package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/run"
)

// progress tells what a run does: a line for each fact, and on a terminal one more, redrawn,
// for what is running now.
type progress struct {
	terminal *terminal

	mu    sync.Mutex
	drawn bool // the redrawn line is on the screen
}

func newProgress(t *terminal) *progress { return &progress{terminal: t} }

// observe is the engine's hook: it sees each commit.
func (p *progress) observe(d *run.Document, events []run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		if line := p.line(e); line != "" {
			p.clear()
			p.terminal.say("%s", line)
		}
	}
	if working := working(d); len(working) > 0 {
		p.draw("running " + strings.Join(working, ", "))
	}
}

// working lists the nodes that the next superstep runs.
func working(d *run.Document) []string {
	if d.Status != run.Running || len(d.Tasks) > 0 {
		return nil
	}
	asking := map[string]bool{}
	for _, i := range d.OpenInterrupts() {
		asking[i.Node] = true
	}
	var nodes []string
	for _, n := range d.Pending {
		if !asking[n] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// line is what a person reads of an event; most have none.
func (p *progress) line(e run.Event) string {
	t := p.terminal
	switch e.Type {
	case run.EventNodeCompleted:
		return t.paint(green, "+") + " " + e.Node
	case run.EventNodeSkipped:
		return t.paint(faint, "-") + " " + e.Node + " skipped: " + e.Reason
	case run.EventNodeSnoozed:
		return t.paint(faint, "~") + " " + e.Node + " sleeps until " + e.Wake.Format(time.RFC3339)
	case run.EventNodeFailed:
		line := fmt.Sprintf("%s %s failed, attempt %d: %s: %s", t.paint(red, "!"), e.Node, e.Attempt, e.Failure.Code, e.Failure.Message)
		if !e.Wake.IsZero() {
			line += ", again at " + e.Wake.Format(time.RFC3339)
		}
		return line
	case run.EventInterruptRequested:
		return t.paint(yellow, "?") + " " + e.Node + " asks"
	case run.EventInterruptResolved:
		return t.paint(yellow, "=") + " " + e.Node + " is answered"
	}
	return ""
}

// waits tells that nothing happens before an instant.
func (p *progress) waits(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.IsZero() {
		p.draw("waiting for the process that holds the run")
		return
	}
	p.draw("waiting until " + until.Local().Format(time.TimeOnly))
}

// end takes the redrawn line away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// say prints a line of information in its own place.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.terminal.say(format, args...)
}

// abandoned tells that the run cannot begin here.
func (p *progress) abandoned(_ context.Context, a belay.Abandon) {
	for _, r := range a.Reasons {
		p.say("%s the run cannot go on here, and is handed back: %s", p.terminal.paint(red, "!"), r.Message)
	}
}

func (p *progress) draw(text string) {
	if t := p.terminal; t.live && !t.json {
		fmt.Fprintf(t.err, "\r\x1b[K%s", t.paint(faint, text))
		p.drawn = true
	}
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.terminal.err, "\r\x1b[K")
		p.drawn = false
	}
}
