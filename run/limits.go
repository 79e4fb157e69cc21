package run

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// MaxText bounds one text that a node gives to be kept, in bytes: the message of a
// failure, the reason of a skip. A longer one is not cut but refused: the run fails
// with CodeTooLarge, and that failure's message tells how long the text was, and
// quotes its beginning as such.
const MaxText = 64 << 10

// MaxReason bounds the reason of a cancel, in bytes.
const MaxReason = 1 << 10

// headroom is the part of a document's limit that only the last commit of a run
// may use: a run whose document is as large as it may be can still be failed, and
// be cancelled with a reason.
func headroom(limit int) int { return min(8<<10, limit/8) }

// fits checks a proposal's sizes: its events, and its document against limit.
func (m *Machine) fits(p Proposal, limit int) error {
	for i := range p.Events {
		if err := CheckEventSize(&p.Events[i], m.limits.EventPayload); err != nil {
			return err
		}
	}
	return CheckDocumentSize(p.Document, limit)
}

// CheckDocumentSize refuses a document that is larger than limit, in bytes, as Encode writes
// it: value.ErrTooLarge. A document that is far from the limit is not encoded to know it.
func CheckDocumentSize(d *Document, limit int) error {
	if atMost.document(d) <= limit {
		return nil
	}
	raw, err := Encode(d)
	if err != nil {
		return err
	}
	return value.Check("document", len(raw), limit)
}

// CheckEventSize is CheckDocumentSize for an event, as EncodeEvent writes it.
func CheckEventSize(e *Event, limit int) error {
	if atMost.event(e) <= limit {
		return nil
	}
	raw, err := EncodeEvent(*e)
	if err != nil {
		return err
	}
	return value.Check("event payload", len(raw), limit)
}

// fitsGoing is fits for a document that is not terminal.
func (m *Machine) fitsGoing(p Proposal) error {
	return m.fits(p, m.limits.Document-headroom(m.limits.Document))
}

// oversized is the failure that a proposal over a limit becomes.
func (m *Machine) oversized(p Proposal) *Failure {
	limit := m.limits.Document
	if !p.Document.Status.Terminal() {
		limit -= headroom(limit)
	}
	err := m.fits(p, limit)
	if err == nil {
		return nil
	}
	f := tooLarge("", err)
	return &f
}

// tooLarge is the failure that a size over its limit becomes.
func tooLarge(node string, err error) Failure {
	return Failure{Code: CodeTooLarge, Message: err.Error(), Node: node}
}

// storable is text as it can be kept: each byte that is not UTF-8 becomes U+FFFD.
func storable(text string) string {
	for i, r := range text {
		if r == '\uFFFD' {
			return text[:i] + string([]rune(text[i:]))
		}
	}
	return text
}

// excerpt is how much of an overlong text is quoted, in bytes.
const excerpt = 1 << 10

// overlong is the failure of a node whose text of the given kind is over MaxText.
func overlong(node, kind, text, code string) Failure {
	f := Failure{
		Code:    CodeTooLarge,
		Node:    node,
		Message: fmt.Sprintf("the %s has %d bytes, the limit is %d: shorten it, or keep it elsewhere and pass a reference; it begins with %q", kind, len(text), MaxText, storable(text[:min(excerpt, len(text))])),
	}
	if code != "" {
		f.Details, _ = jsontext.AppendQuote([]byte(`{"code":`), code)
		f.Details = append(f.Details, '}')
	}
	return f
}
