package node

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/belay-run/belay/value"
)

// Go values are encoded and decoded as encoding/json does it, with these differences:
// nil slices and maps are [] and {}, so that a forgotten initialization does not write
// null into a field that is an array; names match exactly; an array must have its
// length; an integer decoded into an interface stays an integer; and what is not valid
// (NaN, bad UTF-8, duplicate names) is refused with its path rather than replaced.
var codec = json.JoinOptions(
	jsonv1.OmitEmptyWithLegacySemantics(true),
	jsonv1.StringifyWithLegacySemantics(true),
	jsonv1.FormatByteArrayAsArray(true),
	jsonv1.FormatBytesWithLegacySemantics(true),
	jsonv1.FormatDurationAsNano(true),
	json.Deterministic(true),
	json.WithMarshalers(json.MarshalToFunc(encodeNumber)),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(decodeNumber),
		json.UnmarshalFromFunc(decodeAny),
	)),
)

func encodeNumber(enc *jsontext.Encoder, n stdjson.Number) error {
	if n == "" {
		n = "0"
	}
	if raw := jsontext.Value(n); raw.Kind() != '0' || !raw.IsValid() {
		return fmt.Errorf("%q is not a number", string(n))
	}
	return enc.WriteValue(jsontext.Value(n))
}

func decodeNumber(dec *jsontext.Decoder, n *stdjson.Number) error {
	switch dec.PeekKind() {
	case '0':
		raw, err := dec.ReadValue()
		*n = stdjson.Number(raw)
		return err
	case 'n':
		*n = ""
		return dec.SkipValue()
	}
	return errors.New("it is not a number")
}

// decodeAny reads numbers into interfaces as value.Decode does: an integer literal that
// fits becomes an int64.
func decodeAny(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if i, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		*v = i
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("%s is out of range: use json.Number", raw)
	}
	*v = f
	return nil
}

// decodeInto decodes a canonical value; errors are *value.Error with the path.
func decodeInto(raw value.Value, into any) error {
	if err := json.Unmarshal(raw, into, codec); err != nil {
		return pathed(err)
	}
	return nil
}

// encodeMembers encodes a struct or map and gives its members, each canonical.
func encodeMembers(v any) (map[string]value.Value, error) {
	raw, err := json.Marshal(v, codec)
	if err != nil {
		return nil, pathed(err)
	}
	if string(raw) == "{}" {
		return nil, nil
	}
	return split(raw)
}

// split gives an object's members, each canonical.
func split(raw jsontext.Value) (map[string]value.Value, error) {
	if raw.Kind() != '{' {
		return nil, &value.Error{Reason: "it is not an object"}
	}
	members := make(map[string]value.Value)
	tokens := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := tokens.ReadToken(); err != nil {
		return nil, pathed(err)
	}
	for tokens.PeekKind() != '}' {
		token, err := tokens.ReadToken()
		if err != nil {
			return nil, pathed(err)
		}
		name := token.String() // before the next read, which reuses its bytes
		member, err := tokens.ReadValue()
		if err != nil {
			return nil, pathed(err)
		}
		if members[name], err = value.Parse(member); err != nil {
			return nil, prefixed(jsontext.Pointer("").AppendToken(name), err)
		}
	}
	return members, nil
}

// canonicalMembers canonicalizes each member of an update. A member without bytes is
// refused: absent and null are different answers, and neither may be guessed.
func canonicalMembers(members map[string]value.Value) (map[string]value.Value, error) {
	out := make(map[string]value.Value, len(members))
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if members[name] == nil {
			return nil, &value.Error{
				Path:   string(jsontext.Pointer("").AppendToken(name)),
				Reason: "the value is absent: leave the name out of the update, or write null",
			}
		}
		v, err := value.Parse(members[name])
		if err != nil {
			return nil, prefixed(jsontext.Pointer("").AppendToken(name), err)
		}
		out[name] = v
	}
	return out, nil
}

// pathed turns an error of the JSON library into one of value: where, and why in words
// of a person who does not know the library. It never repeats the refused data.
func pathed(err error) error {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		if inner := (*value.Error)(nil); errors.As(semantic.Err, &inner) {
			return prefixed(semantic.JSONPointer, inner)
		}
		return &value.Error{Path: string(semantic.JSONPointer), Reason: reason(semantic)}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return &value.Error{Path: string(syntactic.JSONPointer), Reason: syntaxReason(syntactic)}
	}
	return &value.Error{Reason: err.Error()}
}

func reason(e *json.SemanticError) string {
	kind := map[jsontext.Kind]string{
		'n': "null", 'f': "a boolean", 't': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
	}[e.JSONKind]
	var text string
	switch {
	case kind != "" && e.GoType != nil:
		text = fmt.Sprintf("%s does not fit the Go type %s", kind, e.GoType)
	case e.GoType != nil:
		text = fmt.Sprintf("the Go type %s cannot hold it", e.GoType)
	default:
		text = "it cannot be converted"
	}
	if e.Err != nil {
		// A parse error of strconv repeats its input.
		if num := (*strconv.NumError)(nil); errors.As(e.Err, &num) {
			return text + ": " + num.Err.Error()
		}
		if syntactic := (*jsontext.SyntacticError)(nil); errors.As(e.Err, &syntactic) {
			return text + ": " + syntaxReason(syntactic)
		}
		text += ": " + e.Err.Error()
	}
	return text
}

func syntaxReason(e *jsontext.SyntacticError) string {
	reason := strings.TrimPrefix(e.Err.Error(), "jsontext: ")
	if reason == "invalid UTF-8" {
		return "the text is not valid UTF-8: encode other bytes, for instance as base64"
	}
	return reason
}

// prefixed puts a path before the path of an error of value.
func prefixed(at jsontext.Pointer, err error) error {
	var inner *value.Error
	if errors.As(err, &inner) {
		return &value.Error{Path: string(at) + inner.Path, Reason: inner.Reason}
	}
	return fmt.Errorf("at %s: %w", at, err)
}

// invalidAt says what was being read when err occurred.
func invalidAt(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// isObjectType reports whether Go values of t encode to JSON objects by their fields or
// keys alone, that is without methods of their own.
func isObjectType(t reflect.Type) bool {
	if hasJSONMethods(t) || hasTextMethods(t) {
		return false
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map && t.Key().Kind() == reflect.String
}
