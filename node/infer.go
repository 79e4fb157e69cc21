package node

import (
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// inference infers schemas bottom-up: what the library would misjudge (a type with
// methods of its own, raw JSON, a nil-able slice, an optional pointer) is learned
// first, by type, and the library puts the rest together.
type inference struct {
	known  map[reflect.Type]*jsonschema.Schema
	active map[reflect.Type]bool
	done   map[reflect.Type]bool
}

func newInference() *inference {
	text := &jsonschema.Schema{Type: "string"}
	return &inference{
		known: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[time.Time]():          text,
			reflect.TypeFor[slog.Level]():         text,
			reflect.TypeFor[big.Rat]():            text,
			reflect.TypeFor[big.Float]():          text,
			reflect.TypeFor[big.Int]():            {Type: "integer"},
			reflect.TypeFor[stdjson.Number]():     {Type: "number"},
			reflect.TypeFor[stdjson.RawMessage](): anySchema(),
			reflect.TypeFor[jsontext.Value]():     anySchema(),
		},
		active: map[reflect.Type]bool{},
		done:   map[reflect.Type]bool{},
	}
}

var allTypes = []string{"array", "boolean", "null", "number", "object", "string"}

// anySchema admits everything by naming every type: the library makes a schema without
// types, behind a pointer, into one that admits only null. finish empties it again.
func anySchema() *jsonschema.Schema { return &jsonschema.Schema{Types: slices.Clone(allTypes)} }

var (
	jsonMethods = []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.MarshalerTo](),
		reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[json.UnmarshalerFrom](),
	}
	textMethods = []reflect.Type{
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
		reflect.TypeFor[encoding.TextUnmarshaler](),
	}
)

func hasJSONMethods(t reflect.Type) bool { return implementsAny(t, jsonMethods) }
func hasTextMethods(t reflect.Type) bool { return implementsAny(t, textMethods) }

func implementsAny(t reflect.Type, methods []reflect.Type) bool {
	return slices.ContainsFunc(methods, func(m reflect.Type) bool {
		return t.Implements(m) || reflect.PointerTo(t).Implements(m)
	})
}

// learn makes t's schema known, or that of everything t is made of.
func (in *inference) learn(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if in.known[t] != nil || in.done[t] {
		return nil
	}
	if in.active[t] {
		return fmt.Errorf("the type %s contains itself: hold that part as json.RawMessage, or use node.Raw with a schema of your own", t)
	}
	in.active[t] = true
	defer func() { delete(in.active, t); in.done[t] = true }()

	switch {
	case t.Kind() == reflect.Interface && t.NumMethod() > 0:
		return fmt.Errorf("the interface %s does not say what it holds: use a concrete type, any, or json.RawMessage", t)
	case hasJSONMethods(t):
		in.known[t] = anySchema()
		return nil
	case hasTextMethods(t):
		in.known[t] = &jsonschema.Schema{Type: "string"}
		return nil
	}
	switch t.Kind() {
	case reflect.Interface:
		in.known[t] = anySchema()
	case reflect.Array, reflect.Map:
		return in.learn(t.Elem())
	case reflect.Slice:
		return in.learnSlice(t)
	case reflect.Struct:
		return in.learnStruct(t)
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("the type %s has no JSON form: leave it out (`json:\"-\"`)", t)
	}
	return nil
}

func (in *inference) learnSlice(t reflect.Type) error {
	if t.Elem().Kind() == reflect.Uint8 && !hasJSONMethods(t.Elem()) && !hasTextMethods(t.Elem()) {
		in.known[t] = &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		return nil
	}
	if err := in.learn(t.Elem()); err != nil {
		return err
	}
	items, err := in.schema(t.Elem())
	if err != nil {
		return err
	}
	in.known[t] = &jsonschema.Schema{Type: "array", Items: items}
	return nil
}

func (in *inference) learnStruct(t reflect.Type) error {
	// The JSON library's own view of a struct is stricter than the schema's.
	if err := json.Unmarshal([]byte("{}"), reflect.New(t).Interface(), codec); err != nil {
		if semantic := (*json.SemanticError)(nil); errors.As(err, &semantic) && semantic.Err != nil {
			err = semantic.Err
		}
		return fmt.Errorf("the type %s: %w", t, err)
	}
	if oddField(t) != nil {
		in.known[t] = &jsonschema.Schema{Type: "object"}
		return nil
	}
	for _, f := range jsonFields(t) {
		if err := in.learn(f.Type); err != nil {
			return fmt.Errorf("the field %s: %w", f.Name, err)
		}
	}
	s, err := in.structSchema(t)
	if err != nil {
		return err
	}
	in.known[t] = s
	return nil
}

// structSchema is the library's schema of a struct, where a pointer is optional.
func (in *inference) structSchema(t reflect.Type) (*jsonschema.Schema, error) {
	// The library takes a known schema of an embedded struct for an override, which it
	// admits in special cases only: those are inferred in place.
	known := maps.Clone(in.known)
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			e := f.Type
			for e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			delete(known, e)
			delete(known, f.Type)
		}
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	for _, f := range jsonFields(t) {
		if f.Type.Kind() == reflect.Pointer {
			s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == jsonName(f) })
		}
	}
	return s, nil
}

func (in *inference) schema(t reflect.Type) (*jsonschema.Schema, error) {
	return jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: in.known})
}

// jsonFields lists the fields of a struct that have a JSON form, promoted ones included.
func jsonFields(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "-"
	})
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name
	}
	return name
}

// oddField reports the first field whose JSON form cannot be inferred from its name and
// type: within other types such a struct is any object, as In, Out or Config it is refused.
func oddField(t reflect.Type) error {
	names := map[string]string{}
	for _, f := range reflect.VisibleFields(t) {
		tag, tagged := f.Tag.Lookup("json")
		if f.Anonymous {
			e := f.Type
			for e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			switch {
			case tagged:
				return fmt.Errorf("the embedded field %s has a json tag: give it a name of its own", f.Name)
			case e.Kind() != reflect.Struct:
				return fmt.Errorf("the embedded field %s is not a struct: give it a name of its own", f.Name)
			case f.Type.Kind() == reflect.Pointer && !f.IsExported():
				return fmt.Errorf("the embedded field %s is a pointer to an unexported struct, which cannot be filled: embed the struct itself", f.Name)
			case hasJSONMethods(e) || hasTextMethods(e):
				return fmt.Errorf("the embedded field %s encodes itself: give it a name of its own", f.Name)
			}
			continue
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		_, options, _ := strings.Cut(tag, ",")
		for option := range strings.SplitSeq(options, ",") {
			if option != "" && option != "omitempty" && option != "omitzero" {
				return fmt.Errorf("the field %s has the json tag option %q: use omitempty or omitzero only", f.Name, option)
			}
		}
		if other, taken := names[jsonName(f)]; taken {
			return fmt.Errorf("the fields %s and %s have the same JSON name %q: rename one", other, f.Name, jsonName(f))
		}
		names[jsonName(f)] = f.Name
	}
	return nil
}

// shape is how a Go type is bound to the state.
type shape struct {
	ports map[string]graph.Port
	names []string // of the ports, sorted
	// nullable holds the ports whose Go type has a place for null.
	nullable map[string]bool
	// open is true for a map, whose names the graph decides.
	open bool
	// fields are how a struct is decoded and encoded without the JSON library, where that is possible.
	fields fields
}

// needObject refuses what In, Out and Config cannot be.
func needObject(t reflect.Type) error {
	switch {
	case isObjectType(t):
		return nil
	case t.Kind() == reflect.Pointer && isObjectType(t.Elem()):
		return fmt.Errorf("%s is a pointer, and must be the struct or map itself: leave out the *", t)
	}
	return fmt.Errorf("%s must be a struct, or a map with string keys", t)
}

func shapeOf(t reflect.Type, reads bool) (shape, error) {
	if err := needObject(t); err != nil {
		return shape{}, err
	}
	in := newInference()
	if t.Kind() == reflect.Map {
		return shape{open: true}, in.learn(t.Elem())
	}
	if err := oddField(t); err != nil {
		return shape{}, err
	}
	if err := in.learn(t); err != nil {
		return shape{}, err
	}
	s := in.known[t]
	sh := shape{nullable: map[string]bool{}}
	for name, property := range s.Properties {
		sh.nullable[name] = slices.Contains(property.Types, "null")
		raw, err := finish(property, reads)
		if err != nil {
			return shape{}, err
		}
		if sh.ports == nil {
			sh.ports = map[string]graph.Port{}
		}
		sh.ports[name] = graph.Port{Schema: raw, Required: slices.Contains(s.Required, name)}
	}
	sh.names = slices.Sorted(maps.Keys(sh.ports))
	sh.fields = fieldsOf(t)
	return sh, nil
}

// configSchema infers the schema of a config.
func configSchema(t reflect.Type) (value.Value, error) {
	if err := needObject(t); err != nil {
		return nil, err
	}
	in := newInference()
	if t.Kind() == reflect.Struct {
		if err := oddField(t); err != nil {
			return nil, err
		}
	}
	if err := in.learn(t); err != nil {
		return nil, err
	}
	s, err := in.schema(t)
	if err != nil {
		return nil, err
	}
	return finish(s, false)
}

// finish is the canonical text of an inferred schema; nil when it admits everything.
// With lenient, objects may hold more than the Go type names: what is read may come
// from a writer that knows more.
func finish(s *jsonschema.Schema, lenient bool) (value.Value, error) {
	tidy(s, lenient)
	raw, err := stdjson.Marshal(s)
	if err != nil {
		return nil, err
	}
	if string(raw) == "true" {
		return nil, nil
	}
	return value.Canonical(raw)
}

func tidy(s *jsonschema.Schema, lenient bool) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, allTypes) {
		s.Types = nil
	}
	if lenient && isFalse(s.AdditionalProperties) {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		tidy(p, lenient)
	}
	tidy(s.Items, lenient)
	if !isFalse(s.AdditionalProperties) {
		tidy(s.AdditionalProperties, lenient)
	}
}

// isFalse recognizes the schema that admits nothing, {"not": {}}.
func isFalse(s *jsonschema.Schema) bool {
	return s != nil && s.Not != nil && reflect.DeepEqual(s.Not, &jsonschema.Schema{})
}
