package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
)

// terminal is where a command reads and prints: results on out, everything else on err.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
	json     bool
	cut      context.Context // ends when nodes are not to finish any more; nil: never
	live     bool            // err is a terminal: progress may be redrawn
	colour   bool
}

func newTerminal(in, out, errs *os.File, getenv func(string) string) *terminal {
	live := isTerminal(errs) && getenv("TERM") != "dumb"
	return &terminal{in: in, out: out, err: errs, getenv: getenv, now: time.Now, live: live, colour: live && getenv("NO_COLOR") == ""}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// The colours of progress.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

func (t *terminal) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// say prints a line of information.
func (t *terminal) say(format string, args ...any) {
	if !t.json {
		fmt.Fprintf(t.err, format+"\n", args...)
	}
}

// result prints a value as JSON, indented for people unless --json was given.
func (t *terminal) result(v any) error {
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	if !t.json {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// problem is an error as --json prints it.
type problem struct {
	Error       string             `json:"error"`
	Hint        string             `json:"hint,omitempty"`
	Exit        int                `json:"exit"`
	Diagnostics []graph.Diagnostic `json:"diagnostics,omitempty"`
	Candidates  []string           `json:"candidates,omitempty"` // the runs that may be meant
	Findings    []finding          `json:"findings,omitempty"`   // of a check that ended early
}

func (t *terminal) problem(err error) problem {
	p := problem{Error: plain(err), Exit: exitCode(err)}
	if coded := (*exitError)(nil); errors.As(err, &coded) {
		p.Hint = coded.hint
	}
	if p.Hint == "" && errors.Is(err, backend.ErrSealed) {
		p.Hint = "this command has no keys: belay runs list shows what is not sealed, and a program of yours that has the key shows the rest"
	}
	if ambiguous := (*ambiguousError)(nil); errors.As(err, &ambiguous) {
		p.Candidates = ambiguous.candidates
	}
	if found := graph.Diagnostics(nil); t.json && errors.As(err, &found) {
		p.Diagnostics = found
		p.Error, _, _ = strings.Cut(p.Error, "\n") // the list stands beside it
		p.Error = strings.TrimSuffix(p.Error, ":")
	}
	return p
}

// finish prints the error a command ended with, and answers its exit code.
func (t *terminal) finish(err error) int {
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	if reported := (errReported{}); errors.As(err, &reported) {
		return code
	}
	p := t.problem(err)
	if t.json {
		if err := t.result(p); err == nil {
			return code
		}
		// A result that cannot be printed is told where it still may be.
	}
	fmt.Fprintln(t.err, t.paint(red, "belay: ")+p.Error)
	if p.Hint != "" {
		fmt.Fprintln(t.err, p.Hint)
	}
	return code
}

// plain is an error's text without the library's prefix, which the command's own replaces.
func plain(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "belay: "), ": belay: ", ": ")
}
