package value

import "strconv"

// MaxDepth is how many arrays and objects may be nested in one value.
const MaxDepth = 1000

var depthReason = "the value is nested deeper than " + strconv.Itoa(MaxDepth) + " levels: flatten it"

// Limits bounds what may be stored, in bytes. A zero field means its default.
type Limits struct {
	// Document bounds one encoded run document. Defaults to 16 MiB.
	Document int
	// EventPayload bounds one encoded event. Defaults to 1 MiB.
	EventPayload int
	// Value bounds one state value. Defaults to 8 MiB.
	Value int
}

// WithDefaults fills the zero fields.
func (l Limits) WithDefaults() Limits {
	if l.Document == 0 {
		l.Document = 16 << 20
	}
	if l.EventPayload == 0 {
		l.EventPayload = 1 << 20
	}
	if l.Value == 0 {
		l.Value = 8 << 20
	}
	return l
}

// Check answers *LimitError when size is over limit.
func Check(what string, size, limit int) error {
	if size > limit {
		return &LimitError{What: what, Size: size, Limit: limit}
	}
	return nil
}
