package node

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// fields are those of a struct, all of them of plain types: truth values, integers and texts. They are
// decoded and encoded one by one, as the JSON library would do it, for a fraction of its cost. What is
// not that simple is left to the library, which also says what is wrong.
type fields struct {
	plain bool
	list  []field
}

// field is one of them.
type field struct {
	name string
	at   []int
	kind reflect.Kind
	omit bool // when it is zero
}

// fieldsOf are the fields of a struct that shapeOf admits. They are not plain when one of them is not.
func fieldsOf(t reflect.Type) fields {
	fs := fields{plain: true}
	for _, f := range jsonFields(t) {
		if !isPlain(f.Type) || throughPointer(t, f.Index) {
			return fields{}
		}
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fs.list = append(fs.list, field{name: jsonName(f), at: f.Index, kind: f.Type.Kind(), omit: options != ""})
	}
	return fs
}

// isPlain: a truth value, an integer or a text whose type has no methods, which could have a say in its form.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return reflect.PointerTo(t).NumMethod() == 0
	}
	return false
}

// throughPointer reports whether a promoted field lies behind a pointer.
func throughPointer(t reflect.Type, at []int) bool {
	for _, i := range at[:len(at)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

// decode fills a zero struct. When it reports false, what is read is not that simple, and the
// struct is not to be used.
func (fs fields) decode(reads map[string]value.Value, into reflect.Value) bool {
	if !fs.plain {
		return false
	}
	for i := range fs.list {
		f := &fs.list[i]
		raw := reads[f.name]
		if raw == nil {
			if !f.omit {
				return false // it is required
			}
			continue
		}
		if !f.set(into.FieldByIndex(f.at), raw) {
			return false
		}
	}
	return true
}

// set puts a value into its field.
func (f *field) set(to reflect.Value, raw value.Value) bool {
	switch f.kind {
	case reflect.Bool:
		is := string(raw) == "true"
		to.SetBool(is)
		return is || string(raw) == "false"
	case reflect.String:
		if !isPlainText(raw) {
			return false
		}
		to.SetString(string(raw[1 : len(raw)-1]))
		return true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(string(raw), 10, to.Type().Bits())
		to.SetInt(n)
		return err == nil && isInteger(raw)
	default:
		n, err := strconv.ParseUint(string(raw), 10, to.Type().Bits())
		to.SetUint(n)
		return err == nil && isInteger(raw)
	}
}

// isPlainText: a JSON string that is its own text between the quotes.
func isPlainText(raw value.Value) bool {
	last := len(raw) - 1
	return last > 0 && raw[0] == '"' && raw[last] == '"' && utf8.Valid(raw) &&
		!bytes.ContainsFunc(raw[1:last], func(r rune) bool { return r < ' ' || r == '"' || r == '\\' })
}

// isInteger: what strconv took for an integer is one in JSON, too.
func isInteger(raw value.Value) bool {
	digits := bytes.TrimPrefix(raw, []byte{'-'})
	return raw[0] != '+' && (digits[0] != '0' || len(digits) == 1)
}

// encode gives the members of a struct that the graph's node writes, each canonical. It reports false
// when that is left to the library.
func (fs fields) encode(from reflect.Value, writes []string) (update map[string]value.Value, ok bool) {
	if !fs.plain {
		return nil, false
	}
	for i := range fs.list {
		f := &fs.list[i]
		member := from.FieldByIndex(f.at)
		if f.omit && member.IsZero() {
			continue
		}
		raw, err := f.append(nil, member)
		if err != nil {
			return nil, false
		}
		if !slices.Contains(writes, f.name) {
			continue
		}
		if update == nil {
			update = make(map[string]value.Value, len(fs.list))
		}
		update[f.name] = raw
	}
	return update, true
}

func (f *field) append(b []byte, from reflect.Value) ([]byte, error) {
	switch f.kind {
	case reflect.Bool:
		return strconv.AppendBool(b, from.Bool()), nil
	case reflect.String:
		return jsontext.AppendQuote(b, from.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, from.Int(), 10), nil
	default:
		return strconv.AppendUint(b, from.Uint(), 10), nil
	}
}
