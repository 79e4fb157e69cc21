package value

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled JSON Schema (2020-12). It is safe for concurrent use.
type Schema struct {
	raw      Value // nil for a part of a schema, which finds its text in document
	compiled *jsonschema.Schema
	document any   // the schema with the shared definitions it needs
	kinds    kinds // what it allows, when it says no more than a type; else none
}

const (
	dialect  = "https://json-schema.org/draft/2020-12/schema"
	location = "belay:///schema"
	defsPath = "/$defs"
)

// CompileSchema compiles a schema. defs are shared definitions that the schema
// may reference as "#/$defs/NAME". References to anything outside the schema and
// its defs are refused; nothing is ever read from a file or the network. So are
// "$id" and other dialects than 2020-12. A schema that is not one is an *Error, with
// the place in the schema ("/$defs/NAME/..." in a shared definition). Definitions
// that the schema does not reach are not looked at (a reference to an anchor reaches
// all of them). "format" is an annotation.
func CompileSchema(schema Value, defs map[string]Value) (*Schema, error) {
	raw, err := Canonical(schema)
	if err != nil {
		return nil, err
	}
	document, err := link(raw, defs)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(location, document); err != nil {
		return nil, compileError(document, err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, compileError(document, err)
	}
	s := &Schema{raw: raw, compiled: compiled, document: document}
	if allowed, only := kindsOf(document); only {
		s.kinds = allowed
	}
	return s, nil
}

// Raw is the canonical schema text that was compiled (without the shared defs).
func (s *Schema) Raw() Value {
	if s.raw != nil {
		return s.raw
	}
	part, err := lookup(s.document, fragment(s.compiled.Location))
	if err != nil {
		return nil
	}
	text, err := jsonv2.Marshal(part, encoding)
	if err != nil {
		return nil
	}
	raw, err := Canonical(text)
	if err != nil {
		return nil
	}
	return raw
}

// Validate reports whether v fits: nil, or *Error naming the first misfit by path: a
// property that is not declared before any other, then in path order, so always the
// same one. Numbers are compared exactly, whatever
// their size; one with more than 1000 digits is refused. The error repeats nothing
// of v but names.
func (s *Schema) Validate(v Value) error {
	if s.kinds.allows(v) {
		return nil // what Misfits would find, without decoding: most values written are of these
	}
	if misfits := s.Misfits(v); len(misfits) > 0 {
		return misfits[0]
	}
	return nil
}

// Misfits lists everywhere that v does not fit, in Validate's order; empty when it fits.
func (s *Schema) Misfits(v Value) []*Error {
	if v == nil {
		return []*Error{{Reason: "there is no value"}}
	}
	data, err := decode(v, exactNumber)
	if err != nil {
		var bad *Error
		if !errors.As(err, &bad) {
			bad = &Error{Reason: err.Error()}
		}
		return []*Error{bad}
	}
	err = s.compiled.Validate(data)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []*Error{{Reason: err.Error()}}
	}
	return explanation{schema: s.document, data: data}.errors(invalid)
}

// noLoader refuses every reference that leaves the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not followed")
}

// link decodes a schema, checks its references, and adds the shared definitions
// that it reaches.
func link(raw Value, defs map[string]Value) (any, error) {
	document, err := decode(raw, exactNumber)
	if err != nil {
		return nil, err
	}
	root, ok := document.(map[string]any)
	if !ok {
		return document, nil // true, false, or for the compiler to refuse
	}
	l := linker{shared: defs}
	l.schema(root, "")
	if own, ok := root["$defs"].(map[string]any); ok && len(defs) > 0 {
		for _, name := range slices.Sorted(maps.Keys(own)) {
			if _, twice := defs[name]; twice {
				l.refuse(child(defsPath, name), "this is also the name of a shared definition: rename it")
			}
		}
	}
	linked := map[string]any{}
	for len(l.wanted) > 0 && l.err == nil {
		name := l.wanted[0]
		l.wanted = l.wanted[1:]
		if _, done := linked[name]; done {
			continue
		}
		def, err := l.definition(name)
		if err != nil {
			return nil, err
		}
		linked[name] = def
		l.schema(def, child(defsPath, name))
	}
	if l.err != nil {
		return nil, l.err
	}
	if len(linked) > 0 {
		root = maps.Clone(root)
		if own, ok := root["$defs"].(map[string]any); ok {
			maps.Copy(linked, own)
		}
		root["$defs"] = linked
	}
	for _, r := range l.references {
		if _, err := lookup(root, r.target); err != nil {
			return nil, &Error{Path: r.path, Reason: err.Error()}
		}
	}
	return root, nil
}

// linker walks schemas, in name order, and notes what they refer to.
type linker struct {
	shared     map[string]Value
	wanted     []string // shared definitions, each possibly several times
	references []reference
	err        *Error // the first
}

type reference struct{ path, target string }

func (l *linker) refuse(path, reason string) {
	if l.err == nil {
		l.err = &Error{Path: path, Reason: reason}
	}
}

func (l *linker) definition(name string) (any, error) {
	def, err := Canonical(l.shared[name])
	if err == nil {
		var data any
		if data, err = decode(def, exactNumber); err == nil {
			return data, nil
		}
	}
	var place *Error
	if errors.As(err, &place) {
		place.Path = child(defsPath, name) + place.Path
	}
	return nil, err
}

// schema checks one schema; path is its place. What is no schema is left to the compiler.
func (l *linker) schema(schema any, path string) {
	object, ok := schema.(map[string]any)
	if !ok || l.err != nil {
		return
	}
	for _, keyword := range slices.Sorted(maps.Keys(object)) {
		at, v := child(path, keyword), object[keyword]
		switch keyword {
		case "$ref", "$dynamicRef":
			if target, ok := v.(string); ok {
				l.reference(at, target)
			}
		case "$id":
			l.refuse(at, `"$id" is not supported: refer to shared schemas as "#/$defs/NAME"`)
		case "$schema":
			if text, ok := v.(string); ok && strings.TrimSuffix(text, "#") != dialect {
				l.refuse(at, "only the dialect "+dialect+" is supported")
			}
		case "items", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
			"propertyNames", "not", "if", "then", "else", "contentSchema":
			l.schema(v, at)
		case "allOf", "anyOf", "oneOf", "prefixItems":
			list, _ := v.([]any)
			for i, part := range list {
				l.schema(part, fmt.Sprintf("%s/%d", at, i))
			}
		case "properties", "patternProperties", "$defs", "dependentSchemas":
			named, _ := v.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(named)) {
				l.schema(named[name], child(at, name))
			}
		}
	}
}

func (l *linker) reference(path, ref string) {
	anchor, local := strings.CutPrefix(ref, "#")
	if !local {
		l.refuse(path, `references to other documents are not followed: use "#/$defs/NAME"`)
		return
	}
	target, err := url.PathUnescape(anchor)
	if err != nil {
		l.refuse(path, "the reference is not a valid URI fragment")
		return
	}
	if target != "" && target[0] != '/' { // an anchor, which any definition may hold
		l.wanted = append(l.wanted, slices.Sorted(maps.Keys(l.shared))...)
		return
	}
	l.references = append(l.references, reference{path, target})
	if in, ok := strings.CutPrefix(target, defsPath+"/"); ok {
		name, _, _ := strings.Cut(in, "/")
		name = unescape(name)
		if _, ok := l.shared[name]; ok {
			l.wanted = append(l.wanted, name)
		}
	}
}

// compileError finds the place in the schema that the compiler refuses.
func compileError(document any, err error) *Error {
	var (
		invalid  *jsonschema.SchemaValidationError
		misfits  *jsonschema.ValidationError
		regex    *jsonschema.InvalidRegexError
		noAnchor *jsonschema.AnchorNotFoundError
	)
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &misfits):
		at := explanation{data: document}.errors(misfits)[0]
		return &Error{Path: fragment(invalid.URL) + at.Path, Reason: "not a JSON Schema: " + at.Reason}
	case errors.As(err, &regex):
		return &Error{Path: fragment(regex.URL), Reason: fmt.Sprintf("not a regular expression: %v", regex.Err)}
	case errors.As(err, &noAnchor):
		return &Error{Reason: fmt.Sprintf("there is no anchor %s", strings.TrimPrefix(noAnchor.Reference, location))}
	}
	return &Error{Reason: "not a JSON Schema: " + err.Error()}
}

// fragment is the JSON Pointer behind the "#" of a location.
func fragment(location string) string {
	_, escaped, _ := strings.Cut(location, "#")
	if path, err := url.PathUnescape(escaped); err == nil {
		return path
	}
	return escaped
}

// lookup follows a JSON Pointer into decoded JSON.
func lookup(data any, path string) (any, error) {
	if path == "" {
		return data, nil
	}
	for token := range strings.SplitSeq(path[1:], "/") {
		token = unescape(token)
		switch parent := data.(type) {
		case map[string]any:
			child, ok := parent[token]
			if !ok {
				return nil, fmt.Errorf("there is no #%s in the schema or its definitions", path)
			}
			data = child
		case []any:
			i, ok := index(token)
			if !ok || i >= len(parent) {
				return nil, fmt.Errorf("there is no #%s in the schema or its definitions", path)
			}
			data = parent[i]
		default:
			return nil, fmt.Errorf("there is no #%s in the schema or its definitions", path)
		}
	}
	return data, nil
}

// child appends a token to a JSON Pointer.
func child(path, token string) string {
	return string(jsontext.Pointer(path).AppendToken(token))
}

func unescape(token string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
}
