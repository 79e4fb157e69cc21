package value

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// encoding writes Go values as encoding/json does, tags and Marshalers included,
// but refuses text it would silently repair, and escapes nothing for HTML. Names
// that a Marshaler writes twice are left for Parse to refuse.
var encoding = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false), // its errors have no place
	jsontext.AllowInvalidUTF8(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(encodeNumber)),
)

// encodeNumber keeps the digits of a json.Number, which is a string to the encoder.
func encodeNumber(e *jsontext.Encoder, n json.Number) error {
	if n == "" {
		n = "0" // as encoding/json has it
	}
	v := jsontext.Value(n)
	if v.Kind() != '0' {
		return errors.New("the json.Number does not hold a number")
	}
	return e.WriteValue(v)
}

// Of encodes a Go value as a new state value, as encoding/json would, except that
// invalid UTF-8 is refused instead of replaced and nothing is escaped for HTML.
// Numbers in a json.RawMessage or json.Number keep their digits. What has no JSON
// form (NaN, infinities, functions, cycles), and what Parse refuses, is an *Error
// with its place.
func Of(v any) (Value, error) {
	switch v := v.(type) {
	case nil:
		return Null(), nil
	case bool:
		if v {
			return Value("true"), nil
		}
		return Value("false"), nil
	case json.RawMessage:
		if v == nil {
			return Null(), nil
		}
		return Parse(v)
	}
	raw, err := jsonv2.Marshal(v, encoding)
	if err != nil {
		return nil, encodeError(err)
	}
	return Parse(raw)
}

// encodeError keeps the place and drops the encoder's own sentence, whose wording
// differs from process to process.
func encodeError(err error) *Error {
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		return syntaxError(err, "")
	}
	var syntax *jsontext.SyntacticError
	if errors.As(semantic.Err, &syntax) {
		return syntaxError(syntax, semantic.JSONPointer)
	}
	out := &Error{Path: string(semantic.JSONPointer), cause: semantic.Err}
	switch {
	case semantic.Err == nil:
		out.Reason = fmt.Sprintf("a Go %v has no JSON form: leave it out or give it a MarshalJSON method", semantic.GoType)
	default:
		out.Reason = fmt.Sprintf("a Go %v cannot be encoded: %v", semantic.GoType, semantic.Err)
	}
	return out
}
