package value

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Types lists the JSON types the schema allows at its top level, following
// local references ("null", "boolean", "integer", "number", "string", "array",
// "object", in this order); empty when the schema does not say. Besides "type" it
// reads "const", "enum", and "anyOf" or "oneOf" of which every branch says.
func (s *Schema) Types() []string {
	return slices.DeleteFunc(slices.Clone(typeNames), func(name string) bool {
		return !slices.Contains(types(s.compiled, nil), name)
	})
}

var typeNames = []string{"null", "boolean", "integer", "number", "string", "array", "object"}

func types(s *jsonschema.Schema, seen []*jsonschema.Schema) []string {
	if slices.Contains(seen, s) {
		return nil
	}
	seen = append(seen, s)
	switch {
	case s.Types != nil:
		return s.Types.ToStrings()
	case s.Const != nil:
		return []string{typeOf(*s.Const)}
	case s.Enum != nil:
		var all []string
		for _, v := range s.Enum.Values {
			all = append(all, typeOf(v))
		}
		return all
	}
	if s.Ref != nil {
		if named := types(s.Ref, seen); len(named) > 0 {
			return named
		}
	}
	for _, branches := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		var all []string
		for _, branch := range branches {
			named := types(branch, seen)
			if len(named) == 0 {
				all = nil
				break
			}
			all = append(all, named...)
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// typeOf is the JSON type of decoded JSON; a number is an integer when it has no
// fraction and no exponent.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// Property is the schema of one object property, nil when the schema does not
// declare it; closed says that undeclared properties are refused. A property that
// "patternProperties" matches is declared.
func (s *Schema) Property(name string) (property *Schema, closed bool) {
	for at := range s.chain() {
		refuses := at.AdditionalProperties == false
		closed = closed || refuses
		if found := declared(at, name); found != nil {
			if property == nil {
				property = s.part(found)
			}
		} else if refuses {
			return nil, true
		}
	}
	return property, closed
}

func declared(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if found, ok := s.Properties[name]; ok {
		return found
	}
	var found *jsonschema.Schema
	for pattern, schema := range s.PatternProperties {
		if pattern.MatchString(name) && (found == nil || schema.Location < found.Location) {
			found = schema
		}
	}
	return found
}

// Properties lists the declared object properties, sorted.
func (s *Schema) Properties() []string {
	names := map[string]struct{}{}
	for at := range s.chain() {
		for name := range at.Properties {
			names[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Items is the schema of an array's elements, nil when the schema does not say.
func (s *Schema) Items() *Schema {
	for at := range s.chain() {
		if len(at.PrefixItems) > 0 {
			return nil // not one schema for all
		}
		if at.Items2020 != nil {
			return s.part(at.Items2020)
		}
	}
	return nil
}

// chain is the schema and what it refers to, which applies to the same value.
func (s *Schema) chain() func(yield func(*jsonschema.Schema) bool) {
	return func(yield func(*jsonschema.Schema) bool) {
		var seen []*jsonschema.Schema
		for at := s.compiled; at != nil && !slices.Contains(seen, at); at = at.Ref {
			if !yield(at) {
				return
			}
			seen = append(seen, at)
		}
	}
}

func (s *Schema) part(compiled *jsonschema.Schema) *Schema {
	return &Schema{compiled: compiled, document: s.document}
}
