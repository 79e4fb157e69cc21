package value

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// form makes jsontext write the canonical form. By default it refuses duplicate
// names and invalid UTF-8, and writes strings minimally.
var form = []jsontext.Options{
	jsontext.ReorderRawObjects(true),
	jsontext.CanonicalizeRawInts(false),
	jsontext.CanonicalizeRawFloats(false),
}

// Canonical canonicalizes JSON text. raw is not modified and not retained.
// Malformed text, text after the value, duplicate names, invalid UTF-8 (a lone
// surrogate escape too) and nesting beyond MaxDepth are refused with *Error.
func Canonical(raw []byte) (Value, error) {
	if len(bytes.TrimLeft(raw, " \t\r\n")) == 0 {
		return nil, &Error{Reason: emptyReason}
	}
	v, err := jsontext.AppendFormat(nil, raw, form...)
	if err != nil {
		return nil, syntaxError(err, "")
	}
	if at := tooDeep(v); at >= 0 {
		return nil, &Error{Path: pointerAt(v, at), Reason: depthReason}
	}
	return v, nil
}

// Parse canonicalizes JSON text that becomes a state value: as Canonical, and
// object keys that begin with "$" are refused at any depth, since they are reserved.
func Parse(raw []byte) (Value, error) {
	v, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	if at := reservedName(v); at >= 0 {
		return nil, &Error{Path: pointerAt(v, at), Reason: `names that begin with "$" are reserved: rename it`}
	}
	return v, nil
}

// tooDeep is the offset of the first bracket nested deeper than MaxDepth in a
// canonical value, or -1.
func tooDeep(v Value) int {
	if bytes.Count(v, []byte{'['})+bytes.Count(v, []byte{'{'}) <= MaxDepth {
		return -1
	}
	depth := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i = endOfString(v, i)
		case '[', '{':
			if depth++; depth > MaxDepth {
				return i
			}
		case ']', '}':
			depth--
		}
	}
	return -1
}

// reservedName is the offset of the first object name in a canonical value that
// begins with "$", or -1. The canonical form never escapes "$", and a string is a
// name exactly when a colon follows it.
func reservedName(v Value) int {
	if !bytes.Contains(v, []byte(`"$`)) {
		return -1
	}
	for i := 0; i < len(v); i++ {
		if v[i] != '"' {
			continue
		}
		end := endOfString(v, i)
		if v[i+1] == '$' && end+1 < len(v) && v[end+1] == ':' {
			return i
		}
		i = end
	}
	return -1
}

// endOfString is the offset of the quote that closes the string which begins at i.
func endOfString(v Value, i int) int {
	for i++; i < len(v) && v[i] != '"'; i++ {
		if v[i] == '\\' {
			i++
		}
	}
	return i
}

// pointerAt is the JSON Pointer of the token at an offset of a canonical value.
func pointerAt(v Value, offset int) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	for d.InputOffset() <= int64(offset) {
		if _, err := d.ReadToken(); err != nil {
			break
		}
	}
	return string(d.StackPointer())
}

// syntaxError says what jsontext refused. within is where the text stands that it
// was reading.
func syntaxError(err error, within jsontext.Pointer) *Error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		// Only an empty text ends without a place.
		return &Error{Path: string(within), Reason: emptyReason}
	}
	path := syntax.JSONPointer
	if !within.Contains(path) {
		path = within + path
	}
	return &Error{Path: string(path), Reason: syntaxReason(syntax)}
}

const emptyReason = "there is no JSON value"

func syntaxReason(syntax *jsontext.SyntacticError) string {
	reason := strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
	switch {
	case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return "the object has this name twice: keep one of them"
	case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
		return "the JSON text ends too early"
	case reason == "invalid UTF-8":
		return "the text is not valid UTF-8: encode other bytes, for instance as base64"
	case strings.HasPrefix(reason, "invalid surrogate pair"), strings.HasPrefix(reason, "invalid escape sequence"):
		return "the text holds an escape that stands for no character"
	case reason == "exceeded max depth":
		return depthReason
	}
	return "not JSON: " + reason
}
