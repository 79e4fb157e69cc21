package node

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// marks is everything this package's functions put on an error, however deep it is
// wrapped or joined.
type marks struct {
	text      string
	code      string
	permanent bool
	retry     bool
	notBefore time.Time // the latest
	asks      []*askError
	ask       *askError
	snooze    *snoozeError
	skip      *skipError
	details   *detailsError
	encoded   value.Value
}

// maxErrors bounds how many errors of one tree are looked at: an error may wrap itself.
const maxErrors = 10_000

// readMarks collects the marks of an error. A failure outweighs an answer it is joined with,
// so that no failure is lost; an unmarked error beside an answer does not count. Of
// several marks of a kind the first counts, and of several not-before instants the latest.
func readMarks(err error) marks {
	m := marks{code: run.CodeError, text: storable(fmt.Sprint(err))}
	if m.text == "" {
		m.text = fmt.Sprintf("an error of type %T without a text", err)
	}
	seen := 0
	m.walk(err, &seen)
	if len(m.asks) > 0 {
		m.ask = m.asks[0]
	}
	if m.details != nil {
		encoded, err := value.Of(m.details.details)
		if err != nil {
			m.text += fmt.Sprintf(" (its details cannot be stored: %s)", storable(err.Error()))
		}
		m.encoded = encoded
	}
	return m
}

func (m *marks) walk(err error, seen *int) {
	if err == nil || *seen >= maxErrors {
		return
	}
	*seen++
	switch e := err.(type) {
	case *askError:
		m.asks = append(m.asks, e)
	case *snoozeError:
		if m.snooze == nil {
			m.snooze = e
		}
	case *skipError:
		if m.skip == nil {
			m.skip = e
		}
	case *permanentError:
		m.permanent = true
	case *retryAfterError:
		m.retry = true
		if e.notBefore.After(m.notBefore) {
			m.notBefore = e.notBefore
		}
	case *detailsError:
		if m.details == nil {
			m.details = e
		}
	case *codedError:
		m.code = e.code
	case *value.LimitError:
		m.permanent, m.code = true, run.CodeTooLarge
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		m.walk(e.Unwrap(), seen)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			m.walk(inner, seen)
		}
	}
}

// failure reports whether the error is a failure and not an answer.
func (m *marks) failure() bool {
	return m.permanent || m.retry || m.ask == nil && m.snooze == nil && m.skip == nil
}

func (m *marks) failed(node string) run.Failure {
	return run.Failure{Code: m.code, Node: node, Message: m.text, Details: m.encoded}
}
