package run

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalidDocument is wrapped when a document breaks a rule of what may be stored.
	ErrInvalidDocument = errors.New("belay: invalid run document")
	// ErrInvalidEvent is wrapped when an event breaks a rule of what may be stored.
	ErrInvalidEvent = errors.New("belay: invalid event")
	// ErrInvalidInput is matched by every *InputError.
	ErrInvalidInput = errors.New("belay: invalid input")
	// ErrInvalidResults is matched by every *ResultsError.
	ErrInvalidResults = errors.New("belay: the results do not match the plan")
	// ErrInactiveRun answers a signal to a terminal run.
	ErrInactiveRun = errors.New("belay: the run is finished")
	// ErrNoInterrupt answers a resolve of an interrupt the run does not have.
	ErrNoInterrupt = errors.New("belay: no such interrupt")
	// ErrAlreadyResolved answers a second resolve.
	ErrAlreadyResolved = errors.New("belay: the interrupt is already resolved")
	// ErrInvalidAnswer is wrapped when an answer does not fit the interrupt's or the field's schema.
	ErrInvalidAnswer = errors.New("belay: the answer does not fit")
)

// InputError lists everything that is wrong with the input of a start, at once.
type InputError struct {
	Problems []InputProblem // by path
}

// InputProblem is one reason why an input does not fit its graph.
type InputProblem struct {
	// Path is a JSON Pointer into the input; "" is the input itself.
	Path string
	// Reason says what is wrong and what to do.
	Reason string
}

func (e *InputError) Error() string {
	var b strings.Builder
	b.WriteString(ErrInvalidInput.Error())
	for i, p := range e.Problems {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		if p.Path == "" {
			b.WriteString("the input")
		} else {
			b.WriteString(p.Path)
		}
		b.WriteString(" ")
		b.WriteString(p.Reason)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrInvalidInput) true.
func (e *InputError) Is(target error) bool { return target == ErrInvalidInput }

// ResultsError says how the results given to Settle differ from the activations
// of the plan. It is a mistake of the caller's; nothing was settled.
type ResultsError struct {
	Node   string // "" when the plan as a whole is at fault
	Reason string
}

func (e *ResultsError) Error() string {
	if e.Node == "" {
		return ErrInvalidResults.Error() + ": " + e.Reason
	}
	return fmt.Sprintf("%v: node %s: %s", ErrInvalidResults, e.Node, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidResults) true.
func (e *ResultsError) Is(target error) bool { return target == ErrInvalidResults }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidDocument, fmt.Sprintf(format, args...))
}

func invalidEvent(e Event, reason string) error {
	return fmt.Errorf("%w: run %s, event %d (%s): %s", ErrInvalidEvent, e.Run, e.Seq, e.Type, reason)
}
