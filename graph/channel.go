package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/belay-run/belay/value"
)

// Channel is one state name.
type Channel struct {
	Name     string
	Input    bool
	Required bool        // inputs only
	Default  value.Value // nil: none
	Schema   *value.Schema
	Reducer  Reducer // fields only
}

// kind is what a document calls the channel.
func (c *Channel) kind() string {
	if c.Input {
		return "input"
	}
	return "field"
}

// CheckValue reports whether v may be the channel's value: what a start gives an
// input, and what a fold gives a field. Errors are those of value.Schema.Validate.
func (c *Channel) CheckValue(v value.Value) error { return c.Schema.Validate(v) }

// CheckWrite reports whether one write may be folded into the field. A field whose
// reducer builds its value out of writes is checked by the part that is written:
//
//   - replace and first: the whole value, against the schema;
//   - append and union: every element, against the schema of the items;
//   - merge: an object, every member against the schema of that property;
//   - sum: a number.
//
// CheckValue still has the last word on what the fold gives.
func (c *Channel) CheckWrite(v value.Value) error {
	if len(v) == 0 {
		return &value.Error{Reason: "there is no value"}
	}
	switch c.Reducer.name() {
	case reduceAppend, reduceUnion:
		return c.checkElements(v)
	case reduceMerge:
		return c.checkMembers(v)
	case reduceSum:
		if !isNumber(v) {
			return &value.Error{Reason: fmt.Sprintf("%s is added up, so write a number, not %s", c.Name, jsonType(v))}
		}
		return nil
	default:
		return c.Schema.Validate(v)
	}
}

func (c *Channel) checkElements(v value.Value) error {
	items, err := elements(v)
	if err != nil {
		return &value.Error{Reason: "the list does not decode"}
	}
	schema := c.Schema.Items()
	if schema == nil {
		return nil
	}
	for i, item := range items {
		if err := schema.Validate(item); err != nil {
			if v[0] != '[' {
				return err
			}
			return below(atIndex("", i), err)
		}
	}
	return nil
}

func (c *Channel) checkMembers(v value.Value) error {
	var object map[string]json.RawMessage
	if v[0] != '{' || json.Unmarshal(v, &object) != nil {
		return &value.Error{Reason: fmt.Sprintf("%s is merged, so write an object, not %s", c.Name, jsonType(v))}
	}
	for _, name := range sortedKeys(object) {
		property, closed := c.Schema.Property(name)
		if property == nil {
			if closed {
				return &value.Error{Path: at("", name), Reason: "the schema does not allow this member"}
			}
			continue
		}
		if c.Reducer.Deep && object[name][0] == '{' {
			continue
		}
		if err := property.Validate(object[name]); err != nil {
			return below(at("", name), err)
		}
	}
	return nil
}

// below moves an error of a part to its place in the whole.
func below(path string, err error) error {
	var bad *value.Error
	if errors.As(err, &bad) {
		return &value.Error{Path: path + bad.Path, Reason: bad.Reason}
	}
	return err
}

// Fold folds a superstep's writes into the field and checks the result against the
// schema. committed is the field's value and version the number of commits that
// wrote it: while it is 0 the value is the default (or nil), which first takes for
// unwritten and every other reducer builds on. Errors are *ReduceError or those of
// CheckValue; both are permanent.
func (c *Channel) Fold(committed value.Value, version int64, writes []value.Value) (value.Value, error) {
	if version == 0 && c.Reducer.name() == reduceFirst {
		committed = nil
	}
	v, err := c.Reducer.Fold(committed, writes)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, nil
	}
	return v, c.CheckValue(v)
}

// checkReducer reports what is wrong with a field's reducer.
func (r *reporter) checkReducer(path string, red Reducer, schema *value.Schema) {
	name := red.name()
	if !slices.Contains(reducerNames, name) {
		r.report(codeUnknownReducer, path, "There is no reducer %q: use %s.", name, list(reducerNames))
		return
	}
	option := func(set bool, option, of string) {
		if set && name != of {
			r.report(codeBadReducer, at(path, option), "The option %s belongs to the reducer %s, not to %s: remove it.", option, of, name)
		}
	}
	option(red.Unique, "unique", reduceAppend)
	option(red.Max != 0, "max", reduceAppend)
	option(red.By != "", "by", reduceUnion)
	option(red.Deep, "deep", reduceMerge)
	if red.Max < 0 {
		r.report(codeBadReducer, at(path, "max"), "max is %d: use a positive number of elements, or leave it out for no bound.", red.Max)
	}
	gives := map[string][]string{
		reduceAppend: {"array"}, reduceUnion: {"array"}, reduceMerge: {"object"}, reduceSum: {"number", "integer"},
	}[name]
	if schema == nil || gives == nil {
		return
	}
	types := schema.Types()
	if len(types) > 0 && !slices.ContainsFunc(gives, func(t string) bool { return slices.Contains(types, t) }) {
		r.report(codeReducerMismatch, path, "The reducer %s gives %s, but the schema allows %s: change one of them.", name, article(gives), list(types))
	}
}

func article(types []string) string {
	switch types[0] {
	case "number":
		return "a number"
	case "array":
		return "an array"
	default:
		return "an object"
	}
}
