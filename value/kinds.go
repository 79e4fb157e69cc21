package value

import "unicode/utf8"

// kinds is a set of JSON's types.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindString
	kindInteger
	kindNumber // any number, an integer among them
	kindArray
	kindObject

	everyKind = kindNull | kindBoolean | kindString | kindNumber | kindArray | kindObject
)

var kindNames = map[string]kinds{
	"null": kindNull, "boolean": kindBoolean, "string": kindString, "integer": kindInteger,
	"number": kindNumber, "array": kindArray, "object": kindObject,
}

// kindsOf is what a schema allows, if all it says is a type; false if it says more.
func kindsOf(schema any) (kinds, bool) {
	object, ok := schema.(map[string]any)
	if !ok {
		return everyKind, schema == true
	}
	allowed := everyKind
	for keyword, v := range object {
		switch keyword {
		case "type":
			names, ok := v.([]any)
			if !ok {
				names = []any{v}
			}
			allowed = 0
			for _, name := range names {
				text, _ := name.(string)
				allowed |= kindNames[text]
			}
		case "$schema", "$comment", "$defs", "title", "description", "default", "examples", "deprecated",
			"readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType", "contentSchema":
			// Annotations: they allow and refuse nothing.
		default:
			return 0, false
		}
	}
	return allowed, true
}

// allows reports that v is canonical and of one of the types, by its text alone. False says
// nothing: the text may need a decoder to be judged.
func (k kinds) allows(v Value) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case 'n':
		return k&kindNull != 0 && string(v) == "null"
	case 't':
		return k&kindBoolean != 0 && string(v) == "true"
	case 'f':
		return k&kindBoolean != 0 && string(v) == "false"
	case '"':
		return k&kindString != 0 && plainString(v)
	}
	return k&(kindInteger|kindNumber) != 0 && plainInteger(v)
}

// plainString: quoted UTF-8 without an escape.
func plainString(v Value) bool {
	if len(v) < 2 || v[len(v)-1] != '"' {
		return false
	}
	text := v[1 : len(v)-1]
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(text)
}

// plainInteger: digits without a leading zero, and perhaps a sign, few enough for an int64.
func plainInteger(v Value) bool {
	const most = 18
	if v[0] == '-' {
		v = v[1:]
	}
	if len(v) == 0 || len(v) > most || v[0] == '0' && len(v) > 1 {
		return false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
