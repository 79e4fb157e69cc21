package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The exit codes.
const (
	exitDone           = 0
	exitFailed         = 1
	exitUsage          = 2
	exitWaiting        = 3
	exitPoisoned       = 4
	exitCancelled      = 5
	exitInfrastructure = 6
)

// exitMeanings is what each exit code says, of every command; the index is the code.
var exitMeanings = []string{
	exitDone:           "done",
	exitFailed:         "the run failed, the graph or the store has errors, or runs are there that cannot go on",
	exitUsage:          "usage: arguments, an unreadable graph, input that does not fit, a run that is not there",
	exitWaiting:        "the run waits for an answer",
	exitPoisoned:       "the run is poisoned",
	exitCancelled:      "the run was cancelled",
	exitInfrastructure: "infrastructure: the database (one that is not migrated, too), the system, an interrupted command",
}

const exitAnnotation = "exit codes"

// exits declares the exit codes of a command, for its help and its documentation.
func exits(cmd *cobra.Command, codes ...int) *cobra.Command {
	codes = append(codes, exitDone, exitUsage)
	slices.Sort(codes)
	var b strings.Builder
	for _, c := range codes {
		fmt.Fprintf(&b, "  %d  %s\n", c, exitMeanings[c])
	}
	cmd.Annotations = map[string]string{exitAnnotation: b.String()}
	return cmd
}

// exitTemplate shows them in a command's help.
const exitTemplate = `{{with index .Annotations "` + exitAnnotation + `"}}
Exit codes:
{{.}}{{end}}`

// exitError is an error with its exit code, and what to do next.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is an error in what was asked for.
func usage(err error, hint string) error { return &exitError{exitUsage, err, hint} }

// errReported ends a command whose result was printed already.
type errReported struct{ code int }

func (errReported) Error() string { return "reported" }

// refusals are the errors about what was asked for.
var refusals = []error{
	belay.ErrUnreadableGraph, belay.ErrInvalidInput, belay.ErrInvalidConfig, backend.ErrInvalidArgument,
	backend.ErrNotFound, backend.ErrConflict, backend.ErrInactiveRun, backend.ErrUnsupported, backend.ErrSealed,
	run.ErrNoInterrupt, run.ErrAlreadyResolved, run.ErrInvalidAnswer, sqlite.ErrBackupExists,
	value.ErrTooLarge,
}

// exitCode of an error that did not bring its own.
func exitCode(err error) int {
	var coded *exitError
	var reported errReported
	var diagnostics graph.Diagnostics
	switch {
	case errors.As(err, &reported):
		return reported.code
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, belay.ErrPoisoned):
		return exitPoisoned
	case errors.As(err, &diagnostics), slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return exitUsage
	}
	return exitInfrastructure
}
