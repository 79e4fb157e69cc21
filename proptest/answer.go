package proptest

import (
	"errors"
	"fmt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
)

// answer is an error of a store as a word of the transcript; ok stands for no error.
func answer(err error, ok string) string {
	var fence *checkpoint.FenceError
	switch {
	case err == nil:
		return ok
	case errors.As(err, &fence):
		return fenceAnswer(*fence)
	}
	for _, a := range []struct {
		err  error
		word string
	}{
		{backend.ErrInvalidArgument, "invalid argument"},
		{backend.ErrNotFound, "not found"},
		{backend.ErrConflict, "conflict"},
		{backend.ErrInvalidCommit, "invalid commit"},
		{backend.ErrInvalidMutation, "invalid mutation"},
		{backend.ErrEventConflict, "event conflict"},
		{backend.ErrClaimLost, "claim lost"},
		{backend.ErrInactiveRun, "inactive run"},
	} {
		if errors.Is(err, a.err) {
			return a.word
		}
	}
	return fmt.Sprintf("error %q", err)
}

// fenceAnswer is a stale fence as a word of the transcript.
func fenceAnswer(f checkpoint.FenceError) string {
	token := "other token"
	if f.TokenMatched {
		token = "same token"
	}
	return fmt.Sprintf("stale fence (stored %d, presented %d, %s)", f.Stored, f.Presented, token)
}
