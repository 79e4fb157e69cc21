package value

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is matched by every *Error of this package.
var ErrInvalid = errors.New("belay: invalid value")

// ErrTooLarge is matched by every *LimitError.
var ErrTooLarge = errors.New("belay: value too large")

// Error says where in a JSON text a value is refused, and why.
type Error struct {
	// Path is a JSON Pointer into the refused value; "" is the value itself.
	Path string
	// Reason says what is wrong and what to do, in one sentence without a final stop.
	Reason string

	cause error
}

func (e *Error) Error() string {
	at := e.Path
	switch {
	case at == "":
		at = "the value"
	case len(at) > maxPathShown:
		at = strings.ToValidUTF8(at[:maxPathShown], "") + "..."
	}
	return fmt.Sprintf("%v: at %s: %s", ErrInvalid, at, e.Reason)
}

// maxPathShown bounds what a message shows of a path, which is as long as its text is deep.
const maxPathShown = 500

// Unwrap is the error of a MarshalJSON method, where that was the reason.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// LimitError is a size over its limit. It is permanent: trying again with the
// same data fails again, and nothing was cut or stored.
type LimitError struct {
	// What was measured: "document", "event payload", "value", ...
	What string
	// Size and Limit are in bytes.
	Size, Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s has %d bytes, the limit is %d: keep large data elsewhere and pass a reference", ErrTooLarge, e.What, e.Size, e.Limit)
}

// Is makes errors.Is(err, ErrTooLarge) true.
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }
