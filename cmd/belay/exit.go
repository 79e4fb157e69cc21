package main

import (
	"errors"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
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
	case errors.As(err, &diagnostics), errors.Is(err, belay.ErrUnreadableGraph),
		errors.Is(err, belay.ErrInvalidInput), errors.Is(err, backend.ErrInvalidArgument),
		errors.Is(err, belay.ErrInvalidConfig):
		return exitUsage
	}
	return exitInfrastructure
}
