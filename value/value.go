// Package value holds JSON values as canonical bytes: the form in which belay
// keeps, compares, hashes and limits everything a graph computes with.
package value

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Value is one JSON value in canonical form: object keys sorted (by UTF-16 code
// units, as RFC 8785 does), no insignificant white space, strings escaped only
// where they must be, numbers with the digits they came with. A Value is
// immutable once made; copy it before changing its bytes. The nil Value means
// "absent", which is not the same as JSON null.
type Value = json.RawMessage

// Null is the JSON value null.
func Null() Value { return Value("null") }

// Equal reports whether two canonical values have the same bytes: 1 is not 1.0,
// and absent equals only absent.
func Equal(a, b Value) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// Hash is the SHA-256 of the canonical bytes, in lower-case hex.
func Hash(v Value) string {
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:])
}
