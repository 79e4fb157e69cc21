package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

// The reducers' names.
const (
	reduceReplace = "replace"
	reduceFirst   = "first"
	reduceAppend  = "append"
	reduceUnion   = "union"
	reduceMerge   = "merge"
	reduceSum     = "sum"
)

var reducerNames = []string{reduceReplace, reduceFirst, reduceAppend, reduceUnion, reduceMerge, reduceSum}

// ErrReduce is matched by every *ReduceError.
var ErrReduce = errors.New("belay: the writes cannot be folded")

// ReduceError says why a reducer cannot fold a superstep's writes. It is
// permanent: the same writes fail again.
type ReduceError struct {
	Reducer string
	Reason  string
}

func (e *ReduceError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrReduce, e.Reducer, e.Reason)
}

// Is makes errors.Is(err, ErrReduce) true.
func (e *ReduceError) Is(target error) bool { return target == ErrReduce }

func (r Reducer) name() string {
	if r.Name == "" {
		return reduceReplace
	}
	return r.Name
}

func (r Reducer) fail(format string, args ...any) error {
	return &ReduceError{Reducer: r.name(), Reason: fmt.Sprintf(format, args...)}
}

// Fold folds a field's committed value (nil: never written) with the writes of one
// superstep in node-id order. The result is canonical, as committed and writes are.
//
//   - replace: the last write.
//   - first: the committed value, else the first write.
//   - append: the committed list with the writes after it. A write that is a list
//     adds its elements, any other write is one element (so a list becomes one
//     element when it is written within a list). unique leaves out an element
//     equal to one already there; max keeps the last so many.
//   - union: as append with unique. With by, elements are objects, and one whose
//     by-member equals that of an element already there takes its place.
//   - merge: objects, a later member replaces an earlier one; with deep, objects
//     within both are merged in turn. null is a value like any other.
//   - sum: an integer as long as the committed value and every write are integer
//     literals, exact and refused when it leaves int64; from the first other
//     number on a float64, added in order.
//
// Without writes the result is the committed value. Errors are *ReduceError.
func (r Reducer) Fold(committed value.Value, writes []value.Value) (value.Value, error) {
	if len(writes) == 0 {
		return committed, nil
	}
	if len(committed) == 0 {
		committed = nil
	}
	if slices.ContainsFunc(writes, func(w value.Value) bool { return len(w) == 0 }) {
		return nil, r.fail("a write is absent: leave the name out instead")
	}
	switch r.name() {
	case reduceReplace:
		return writes[len(writes)-1], nil
	case reduceFirst:
		if committed != nil {
			return committed, nil
		}
		return writes[0], nil
	case reduceAppend:
		return r.foldList(committed, writes, r.Unique, r.Max)
	case reduceUnion:
		if r.By != "" {
			return r.foldBy(committed, writes)
		}
		return r.foldList(committed, writes, true, 0)
	case reduceMerge:
		return r.foldMerge(committed, writes)
	case reduceSum:
		return r.foldSum(committed, writes)
	}
	return nil, r.fail("there is no such reducer")
}

// elements lists what one write of append or union adds.
func elements(v value.Value) ([]json.RawMessage, error) {
	if len(v) == 0 || v[0] != '[' {
		return []json.RawMessage{v}, nil
	}
	return split(v)
}

var errNotCanonical = errors.New("not canonical")

// split cuts a canonical list into its elements, without a copy.
func split(v value.Value) ([]json.RawMessage, error) {
	if string(v) == "[]" {
		return nil, nil
	}
	var items []json.RawMessage
	depth, start := 0, 1
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '"':
			for i++; i < len(v) && v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
		case ',', ']', '}':
			last := i == len(v)-1
			if depth == 0 && (v[i] == ',' || last && v[i] == ']') {
				if start == i {
					return nil, errNotCanonical
				}
				items = append(items, json.RawMessage(v[start:i:i]))
				start = i + 1
				if last {
					return items, nil
				}
			} else if v[i] != ',' {
				depth--
			}
		}
	}
	return nil, errNotCanonical
}

func (r Reducer) committedList(committed value.Value) ([]json.RawMessage, error) {
	if committed == nil {
		return nil, nil
	}
	if committed[0] != '[' {
		return nil, r.notAList(committed)
	}
	items, err := elements(committed)
	if err != nil {
		return nil, r.fail("the field's value does not decode")
	}
	return items, nil
}

func (r Reducer) foldList(committed value.Value, writes []value.Value, unique bool, limit int) (value.Value, error) {
	if err := r.checkDepth(writes); err != nil {
		return nil, err
	}
	if !unique && limit == 0 {
		return r.splice(committed, writes)
	}
	items, err := r.committedList(committed)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	if unique {
		for _, item := range items {
			seen[string(item)] = true
		}
	}
	for _, w := range writes {
		more, err := elements(w)
		if err != nil {
			return nil, r.fail("a write does not decode")
		}
		for _, item := range more {
			if unique {
				if seen[string(item)] {
					continue
				}
				seen[string(item)] = true
			}
			items = append(items, item)
		}
	}
	if limit > 0 && len(items) > limit {
		items = items[len(items)-limit:]
	}
	return joinList(items), nil
}

// splice appends without looking at the elements: a log grows long.
func (r Reducer) splice(committed value.Value, writes []value.Value) (value.Value, error) {
	if committed == nil {
		committed = value.Value("[]")
	}
	if committed[0] != '[' {
		return nil, r.notAList(committed)
	}
	size := len(committed)
	for _, w := range writes {
		size += len(w) + 1
	}
	out := append(make([]byte, 0, size), committed[:len(committed)-1]...)
	for _, w := range writes {
		if len(w) > 1 && w[0] == '[' {
			w = w[1 : len(w)-1]
		}
		if len(w) == 0 {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, w...)
	}
	return append(out, ']'), nil
}

// checkDepth refuses an element that is as deep as a value may be: within a list it
// would be deeper.
func (r Reducer) checkDepth(writes []value.Value) error {
	for _, w := range writes {
		if len(w) == 0 || w[0] == '[' || bytes.Count(w, []byte{'['})+bytes.Count(w, []byte{'{'}) < value.MaxDepth {
			continue
		}
		if _, err := value.Canonical(joinList([]json.RawMessage{w})); err != nil {
			return r.fail("an element is nested too deeply: write it flatter")
		}
	}
	return nil
}

func (r Reducer) notAList(committed value.Value) error {
	return r.fail("the field's value is %s, not a list: give it a default that is a list, or none", jsonType(committed))
}

func (r Reducer) foldBy(committed value.Value, writes []value.Value) (value.Value, error) {
	if err := r.checkDepth(writes); err != nil {
		return nil, err
	}
	items, err := r.committedList(committed)
	if err != nil {
		return nil, err
	}
	place := make(map[string]int, len(items))
	for i, item := range items {
		key, err := r.key(item)
		if err != nil {
			return nil, err
		}
		if _, ok := place[key]; !ok {
			place[key] = i
		}
	}
	for _, w := range writes {
		more, err := elements(w)
		if err != nil {
			return nil, r.fail("a write does not decode")
		}
		for _, item := range more {
			key, err := r.key(item)
			if err != nil {
				return nil, err
			}
			if i, ok := place[key]; ok {
				items[i] = item
				continue
			}
			place[key] = len(items)
			items = append(items, item)
		}
	}
	return joinList(items), nil
}

func (r Reducer) key(item json.RawMessage) (string, error) {
	var object map[string]json.RawMessage
	if item[0] != '{' || json.Unmarshal(item, &object) != nil {
		return "", r.fail("an element is %s, not an object with the member %q", jsonType(item), r.By)
	}
	key, ok := object[r.By]
	if !ok {
		return "", r.fail("an element has no member %q", r.By)
	}
	return string(key), nil
}

func (r Reducer) foldMerge(committed value.Value, writes []value.Value) (value.Value, error) {
	merged := map[string]json.RawMessage{}
	if committed != nil {
		if committed[0] != '{' {
			return nil, r.fail("the field's value is %s, not an object: give it a default that is an object, or none", jsonType(committed))
		}
		if json.Unmarshal(committed, &merged) != nil {
			return nil, r.fail("the field's value does not decode")
		}
	}
	for _, w := range writes {
		if len(w) == 0 || w[0] != '{' {
			return nil, r.fail("a write is %s: write an object", jsonType(w))
		}
		if err := mergeInto(merged, w, r.Deep); err != nil {
			return nil, r.fail("a write does not decode")
		}
	}
	v, err := value.Canonical(joinObject(merged))
	if err != nil {
		return nil, r.fail("the merged object cannot be kept: %s", sentence(err))
	}
	return v, nil
}

func mergeInto(merged map[string]json.RawMessage, write json.RawMessage, deep bool) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(write, &object); err != nil {
		return err
	}
	for name, v := range object {
		old, exists := merged[name]
		if !deep || !exists || old[0] != '{' || v[0] != '{' {
			merged[name] = v
			continue
		}
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(old, &inner); err != nil {
			return err
		}
		if err := mergeInto(inner, v, deep); err != nil {
			return err
		}
		merged[name] = joinObject(inner)
	}
	return nil
}

func (r Reducer) foldSum(committed value.Value, writes []value.Value) (value.Value, error) {
	var whole int64
	var float float64
	isFloat := false
	add := func(v value.Value) error {
		if !isNumber(v) {
			return r.fail("a value is %s: write a number", jsonType(v))
		}
		if isInteger(v) {
			n, err := strconv.ParseInt(string(v), 10, 64)
			switch {
			case err != nil:
				return r.fail("an integer is outside int64: write a number with a point for floating point")
			case isFloat:
				float += float64(n)
			case n > 0 && whole > math.MaxInt64-n, n < 0 && whole < math.MinInt64-n:
				return r.fail("the sum leaves int64")
			default:
				whole += n
			}
			return nil
		}
		n, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return r.fail("a number is outside float64")
		}
		if !isFloat {
			isFloat, float = true, float64(whole)
		}
		float += n
		return nil
	}
	if committed != nil {
		if err := add(committed); err != nil {
			return nil, err
		}
	}
	for _, w := range writes {
		if err := add(w); err != nil {
			return nil, err
		}
	}
	if !isFloat {
		return strconv.AppendInt(nil, whole, 10), nil
	}
	v, err := value.Of(float)
	if err != nil {
		return nil, r.fail("the sum is outside float64")
	}
	return v, nil
}

func isNumber(v value.Value) bool {
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

func isInteger(v value.Value) bool { return !bytes.ContainsAny(v, ".eE") }

func jsonType(v value.Value) string {
	if len(v) == 0 {
		return "absent"
	}
	if isNumber(v) {
		return "a number"
	}
	return kindName(v[0])
}

// joinObject writes members in no particular order: what it returns is made
// canonical before it is used.
func joinObject(members map[string]json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	for name, v := range members {
		if len(out) > 1 {
			out = append(out, ',')
		}
		// A name that was decoded from JSON is valid UTF-8.
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ':'), v...)
	}
	return append(out, '}')
}

// joinList puts canonical elements together without looking into them.
func joinList(items []json.RawMessage) value.Value {
	size := 2
	for _, item := range items {
		size += len(item) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}
