package claim

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	// ErrInvalidArgument is matched by every *ArgumentError.
	ErrInvalidArgument = errors.New("belay: invalid argument")
	// ErrClaimLost says that the token no longer holds the run (or never did).
	ErrClaimLost = errors.New("belay: claim lost")
	// ErrInvalidState is matched by what State.Valid answers.
	ErrInvalidState = errors.New("belay: invalid claim state")
)

// ArgumentError names an argument that was refused before anything was looked up
// (clause A1).
type ArgumentError struct{ Argument, Reason string }

func (e *ArgumentError) Error() string {
	return ErrInvalidArgument.Error() + ": " + e.Argument + " " + e.Reason
}

// Is makes errors.Is(err, ErrInvalidArgument) true.
func (e *ArgumentError) Is(target error) bool { return target == ErrInvalidArgument }

// MaxID is the longest identifier (run id, tenant, token, start key), in bytes.
const MaxID = 255

// CheckID answers *ArgumentError unless id is 1 to MaxID bytes of UTF-8 without NUL.
// Identifiers are compared bytewise. The error does not repeat the id, which may be
// a secret.
func CheckID(argument, id string) error {
	switch {
	case id == "":
		return &ArgumentError{argument, "must not be empty"}
	case len(id) > MaxID:
		return &ArgumentError{argument, "must not be longer than " + strconv.Itoa(MaxID) + " bytes"}
	case !utf8.ValidString(id):
		return &ArgumentError{argument, "must be valid UTF-8"}
	case strings.IndexByte(id, 0) >= 0:
		return &ArgumentError{argument, "must not hold a NUL character"}
	}
	return nil
}
