package graph

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/expr-lang/expr/vm/runtime"

	"github.com/belay-run/belay/value"
)

func getOf(ev *evaluation, name string, args []any) (any, error) {
	if len(args) == 2 {
		i, err := indexOf(ev, args[1:])
		if err != nil {
			return nil, err
		}
		args = []any{args[0], i}
	}
	return library(name, args)
}

func sumOf(ev *evaluation, args []any) (any, error) {
	total := any(0)
	for _, term := range anys(args[0]) {
		var err error
		if total, err = add(ev, []any{total, term}); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func absOf(ev *evaluation, name string, args []any) (any, error) {
	if args[0] == any(math.MinInt) {
		return nil, errOverflow
	}
	return library(name, args)
}

// sorted pays for sorting keys, and sorts items by them. Equal ones keep their order.
func sorted(ev *evaluation, items, keys []any, order any) (any, error) {
	descending := false
	switch order {
	case "asc":
	case "desc":
		descending = true
	default:
		return nil, errors.New(`the order must be "asc" or "desc"`)
	}
	n, err := ev.look(keys)
	if err == nil {
		err = ev.product(n, int64(bits.Len(uint(len(keys)))))
	}
	if err != nil {
		return nil, err
	}
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(i, j int) int {
		a, b := keys[i], keys[j]
		if descending {
			a, b = b, a
		}
		switch {
		case runtime.Less(a, b):
			return -1
		case runtime.Less(b, a):
			return 1
		default:
			return 0
		}
	})
	out := make([]any, len(items))
	for i, place := range places {
		out[i] = items[place]
	}
	return out, nil
}

func sortByKeys(ev *evaluation, args []any) (any, error) {
	return sorted(ev, anys(args[0]), anys(args[1]), args[2])
}

func sortOf(ev *evaluation, _ string, args []any) (any, error) {
	if !isList(args[0]) {
		return nil, fmt.Errorf("sort takes a list, not %s", describe(args[0]))
	}
	order := any("asc")
	if len(args) > 1 {
		order = args[1]
	}
	items := anys(args[0])
	return sorted(ev, items, items, order)
}

func anys(x any) []any {
	if list, ok := x.([]any); ok {
		return list
	}
	v := reflect.ValueOf(x)
	out := make([]any, v.Len())
	for i := range out {
		out[i] = v.Index(i).Interface()
	}
	return out
}

func intOf(_ *evaluation, _ string, args []any) (any, error) {
	switch x := args[0].(type) {
	case int:
		return x, nil
	case float64:
		if t := math.Trunc(x); t >= -(1<<63) && t < 1<<63 {
			return int(t), nil
		}
		return nil, errors.New("the number is outside the range of int")
	case string:
		n, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			return nil, errors.New("the string is not an integer")
		}
		return int(n), nil
	}
	return nil, fmt.Errorf("int takes a number or a string, not %s", describe(args[0]))
}

func floatOf(_ *evaluation, _ string, args []any) (any, error) {
	switch x := args[0].(type) {
	case int:
		return float64(x), nil
	case float64:
		return x, nil
	case string:
		f, err := strconv.ParseFloat(x, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, errors.New("the string is not a number")
		}
		return f, nil
	}
	return nil, fmt.Errorf("float takes a number or a string, not %s", describe(args[0]))
}

// stringOf is the text of a value: a string itself, JSON of anything else.
func stringOf(ev *evaluation, name string, args []any) (any, error) {
	if s, ok := args[0].(string); ok {
		return s, nil
	}
	return toJSON(ev, name, args)
}

func toJSON(ev *evaluation, _ string, args []any) (any, error) {
	v, err := ev.encode(args[0])
	if err != nil {
		return nil, err
	}
	return string(v), nil
}

func fromJSON(ev *evaluation, _ string, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("fromJSON takes a string, not %s", describe(args[0]))
	}
	if err := ev.spend(1 + int64(len(s))); err != nil {
		return nil, err
	}
	v, err := value.Parse([]byte(s))
	if err != nil {
		return nil, errors.New("the string is not JSON that can be kept")
	}
	return decodeFor(v)
}

func fromBase64(ev *evaluation, _ string, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("fromBase64 takes a string, not %s", describe(args[0]))
	}
	if err := ev.text(len(s)); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !utf8.Valid(b) {
		return nil, errors.New("the string is not base64 of a UTF-8 text")
	}
	return string(b), nil
}

// replaceOf pays for the longest text a replacement can give.
func replaceOf(ev *evaluation, name string, args []any) (any, error) {
	if len(args) >= 3 {
		s, _ := args[0].(string)
		with, _ := args[2].(string)
		if err := ev.product(int64(len(s)+1), int64(len(with)/16+1)); err != nil {
			return nil, err
		}
	}
	return library(name, args)
}

func joinOf(ev *evaluation, name string, args []any) (any, error) {
	if _, err := ev.look(args[0]); err != nil {
		return nil, err
	}
	if len(args) > 1 {
		glue, _ := args[1].(string)
		if err := ev.product(length(args[0], 1), int64(len(glue)/16+1)); err != nil {
			return nil, err
		}
	}
	return library(name, args)
}
