package value

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode turns a canonical value into Go data: nil, bool, string, int64 (an
// integer literal that fits), float64 (any other number), []any, map[string]any.
// The absent value decodes as nil. A number that no float64 holds, and text that
// Canonical refuses, is an *Error with its place.
func Decode(v Value) (any, error) {
	if v == nil {
		return nil, nil
	}
	if data, ok := decodePlain(v); ok {
		return data, nil
	}
	return decode(v, goNumber)
}

// decodePlain decodes the values that guards read most, which need no decoder.
func decodePlain(v Value) (any, bool) {
	switch string(v) {
	case "null":
		return nil, true
	case "true":
		return true, true
	case "false":
		return false, true
	case "0":
		return int64(0), true
	}
	digits := bytes.TrimPrefix(v, []byte{'-'})
	if len(digits) == 0 || digits[0] < '1' || digits[0] > '9' {
		return nil, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// goNumber reads a number literal as int64 where it is one, else as float64.
func goNumber(literal []byte) (any, string) {
	text := string(literal)
	if !bytes.ContainsAny(literal, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, ""
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, "no 64-bit floating point number is this large: use a string for it"
	}
	return f, ""
}

// A number literal beyond these is not validated against a schema: exact
// arithmetic on it would cost far more than its size.
const (
	maxNumberDigits   = 1000
	maxNumberExponent = 1000
)

// exactNumber keeps a number literal as it is.
func exactNumber(literal []byte) (any, string) {
	const reason = "the number has more digits than can be checked exactly: use a string for it"
	if len(literal) > maxNumberDigits {
		return nil, reason
	}
	text := string(literal)
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(text[i+1:])
		if err != nil || exponent > maxNumberExponent || exponent < -maxNumberExponent {
			return nil, reason
		}
	}
	return json.Number(text), ""
}

// decode builds Go data; number reads a number literal or says why it is refused.
func decode(v Value, number func([]byte) (any, string)) (any, error) {
	d := decoder{tokens: jsontext.NewDecoder(bytes.NewBuffer(v)), number: number}
	data, err := d.value()
	if err != nil {
		return nil, err
	}
	switch _, err := d.tokens.ReadToken(); err {
	case io.EOF:
		return data, nil
	case nil:
		return nil, &Error{Reason: "there is text after the JSON value"}
	default:
		return nil, syntaxError(err, "")
	}
}

type decoder struct {
	tokens *jsontext.Decoder
	number func(literal []byte) (any, string)
}

func (d *decoder) value() (any, error) {
	switch d.tokens.PeekKind() {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '0':
		literal, err := d.tokens.ReadValue()
		if err != nil {
			return nil, syntaxError(err, "")
		}
		n, reason := d.number(literal)
		if reason != "" {
			return nil, &Error{Path: string(d.tokens.StackPointer()), Reason: reason}
		}
		return n, nil
	}
	token, err := d.tokens.ReadToken()
	if err != nil {
		return nil, syntaxError(err, "")
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return nil, nil
}

func (d *decoder) object() (any, error) {
	if err := d.open(); err != nil {
		return nil, err
	}
	object := make(map[string]any)
	for d.tokens.PeekKind() != '}' {
		name, err := d.tokens.ReadToken()
		if err != nil {
			return nil, syntaxError(err, "")
		}
		key := name.String() // before the next read, which reuses its bytes
		if object[key], err = d.value(); err != nil {
			return nil, err
		}
	}
	return object, d.close()
}

func (d *decoder) array() (any, error) {
	if err := d.open(); err != nil {
		return nil, err
	}
	array := []any{}
	for d.tokens.PeekKind() != ']' {
		element, err := d.value()
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	return array, d.close()
}

func (d *decoder) open() error {
	if _, err := d.tokens.ReadToken(); err != nil {
		return syntaxError(err, "")
	}
	if d.tokens.StackDepth() > MaxDepth {
		return &Error{Path: string(d.tokens.StackPointer()), Reason: depthReason}
	}
	return nil
}

func (d *decoder) close() error {
	if _, err := d.tokens.ReadToken(); err != nil {
		return syntaxError(err, "")
	}
	return nil
}
