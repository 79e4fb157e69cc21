package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// badRequest is what is wrong with a request itself.
type badRequest struct{ where, reason string }

func (e *badRequest) Error() string { return e.where + ": " + e.reason }

// errAway: the database does not answer.
var errAway = errors.New("the database does not answer just now: send the same request again, with the same Idempotency-Key")

// problem is the body of an answer that is an error, as RFC 9457 has it.
type problem struct {
	Status int            `json:"status"`
	Title  string         `json:"title"`
	Detail string         `json:"detail"`
	Errors []problemEntry `json:"errors,omitempty"`
}

// problemEntry is one thing that is wrong with what was sent.
type problemEntry struct {
	// Path is a JSON Pointer into the body, or the name of a header or a parameter.
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// writeProblem answers with an error.
func writeProblem(ctx context.Context, w http.ResponseWriter, err error) {
	p := problemOf(ctx, err)
	switch p.Status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		slog.WarnContext(ctx, "a request was not answered", "error", err)
	case http.StatusInternalServerError:
		slog.ErrorContext(ctx, "a request failed", "error", err)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// problemOf is the one place where the errors of belay, and of this service, become status codes.
func problemOf(ctx context.Context, err error) problem {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	// What the caller sent. Texts of belay's errors hold no payload and no token.
	case is(belay.ErrInvalidInput, run.ErrInvalidAnswer, belay.ErrInvalidArgument) || asType[*badRequest](err):
		return problem{http.StatusBadRequest, "the request is not valid", err.Error(), entriesOf(err)}
	case asType[*http.MaxBytesError](err), is(value.ErrTooLarge):
		return told(http.StatusRequestEntityTooLarge, "the request is too large", err)
	// What the order is.
	case is(errNoOrder, belay.ErrNotFound):
		return told(http.StatusNotFound, "not found", errNoOrder)
	case is(belay.ErrAlreadyResolved):
		return told(http.StatusConflict, "the order was approved or refused before", err)
	case is(run.ErrNoInterrupt):
		return told(http.StatusConflict, "the order does not wait for an approval", err)
	case is(belay.ErrInactiveRun):
		return told(http.StatusConflict, "the order is finished", err)
	case is(errShipped):
		return told(http.StatusConflict, "it is too late", err)
	case is(errKeyReused):
		return told(http.StatusUnprocessableEntity, "the key belongs to another order", err)
	// What passes. Sending the same again is safe, and the only way to know what became of it.
	case ctx.Err() != nil, is(errAway, backend.ErrBusy, backend.ErrClosed),
		asType[*backend.InfrastructureError](err) && backend.Classify(err) != backend.Permanent:
		return told(http.StatusServiceUnavailable, "try again", errAway)
	}
	return told(http.StatusInternalServerError, "internal error", errors.New("the service's log says more"))
}

func told(status int, title string, err error) problem {
	return problem{Status: status, Title: title, Detail: err.Error()}
}

// entriesOf says where in the request something is wrong.
func entriesOf(err error) (entries []problemEntry) {
	if input, ok := errors.AsType[*run.InputError](err); ok {
		for _, p := range input.Problems {
			entries = append(entries, problemEntry{p.Path, p.Reason})
		}
	} else if refused, ok := errors.AsType[*value.Error](err); ok {
		entries = append(entries, problemEntry{refused.Path, refused.Reason})
	} else if argument, ok := errors.AsType[*backend.ArgumentError](err); ok {
		entries = append(entries, problemEntry{argument.Argument, argument.Reason})
	} else if bad, ok := errors.AsType[*badRequest](err); ok {
		entries = append(entries, problemEntry{bad.where, bad.reason})
	}
	return entries
}

func asType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
