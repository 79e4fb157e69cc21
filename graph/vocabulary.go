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
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/vm/runtime"

	"github.com/belay-run/belay/value"
)

// predicates are the builtins that loop over a list.
var predicates = []string{
	"all", "any", "count", "filter", "find", "findIndex", "findLast", "findLastIndex",
	"groupBy", "map", "none", "one", "reduce", "sortBy", "sum",
}

// deniedReasons are the builtins that no expression reaches, and why.
var deniedReasons = map[string]string{
	"now":       "an expression gives the same answer at any time",
	"date":      "an expression knows no time zones",
	"duration":  "an expression knows no times",
	"timezone":  "an expression reads no files",
	"repeat":    "it makes texts of any size",
	"keys":      "the members of an object have no order",
	"values":    "the members of an object have no order",
	"toPairs":   "the members of an object have no order",
	"fromPairs": "write an object, as in {name: value}",
}

// metering is how a builtin runs: it pays, then does the library's work or its own.
type metering func(ev *evaluation, name string, args []any) (any, error)

// functions are the builtins that are reachable and not predicates.
var functions = map[string]metering{
	"abs": absOf, "ceil": free, "floor": free, "round": free, "type": free,
	"bitand": free, "bitor": free, "bitxor": free, "bitnand": free, "bitnot": free,
	"bitshl": free, "bitshr": free, "bitushr": free,
	"first": free, "last": free, "get": getOf, "take": free,
	"len":  shallow,
	"trim": shallow, "trimPrefix": shallow, "trimSuffix": shallow, "upper": shallow, "lower": shallow,
	"indexOf": shallow, "lastIndexOf": shallow, "hasPrefix": shallow, "hasSuffix": shallow,
	"toBase64": shallow, "reverse": shallow, "concat": shallow,
	"split": bytewise, "splitAfter": bytewise,
	"max": deep, "min": deep, "mean": deep, "median": deep, "flatten": deep,
	"uniq": quadratic,
	"int":  intOf, "float": floatOf, "string": stringOf,
	"replace": replaceOf, "join": joinOf, "sort": sortOf,
	"toJSON": toJSON, "fromJSON": fromJSON, "fromBase64": fromBase64,
}

// deniedBuiltins also denies whatever a newer library adds.
var deniedBuiltins = func() map[string]bool {
	denied := map[string]bool{}
	for _, b := range builtin.Builtins {
		if _, ok := functions[b.Name]; !ok && !slices.Contains(predicates, b.Name) {
			denied[b.Name] = true
		}
	}
	return denied
}()

var allowedBuiltins = func() conf.FunctionsTable {
	allowed := conf.FunctionsTable{}
	for _, b := range builtin.Builtins {
		if !deniedBuiltins[b.Name] {
			allowed[b.Name] = b
		}
	}
	return allowed
}()

// guardFunctions are what guards see besides, as the type checker knows them.
var guardFunctions = conf.FunctionsTable{
	"changed": {Name: "changed", Types: []reflect.Type{reflect.TypeFor[func(string) bool]()}},
	"version": {Name: "version", Types: []reflect.Type{reflect.TypeFor[func(string) int]()}},
}

// meteredFunctions are everything a program calls. The first argument is always the
// evaluation.
var meteredFunctions = func() conf.FunctionsTable {
	table := conf.FunctionsTable{}
	define := func(name string, f func(ev *evaluation, args []any) (any, error)) {
		table[name] = &builtin.Function{Name: name, Func: func(args ...any) (any, error) {
			return f(args[0].(*evaluation), args[1:])
		}}
	}
	for name, f := range functions {
		define(name, func(ev *evaluation, args []any) (any, error) { return f(ev, name, args) })
	}
	define("changed", func(ev *evaluation, args []any) (any, error) { return ev.state.Changed(args[0].(string)), nil })
	define("version", func(ev *evaluation, args []any) (any, error) { return int(ev.state.Version(args[0].(string))), nil })
	define("#list", listOf)
	define("#index", indexOf)
	define("#matched", matched)
	define("#sortBy", sortByKeys)
	define("#..", rangeOf)
	define("#in", in)
	define("#+", plus)
	define("#-", arithmetic(func(a, b int) (int, bool) { return a - b, (a-b < a) == (b > 0) }, runtime.Subtract))
	define("#*", arithmetic(times, runtime.Multiply))
	define("#sum", sumOf)
	comparison := func(name string, f func(a, b any) bool) {
		define(name, func(ev *evaluation, args []any) (any, error) {
			if err := ev.compare(args[0], args[1]); err != nil {
				return nil, err
			}
			return f(args[0], args[1]), nil
		})
	}
	comparison("#==", runtime.Equal)
	comparison("#!=", func(a, b any) bool { return !runtime.Equal(a, b) })
	comparison("#<", runtime.Less)
	comparison("#<=", runtime.LessOrEqual)
	comparison("#>", runtime.More)
	comparison("#>=", runtime.MoreOrEqual)
	onTexts := func(name string, f func(a, b string) bool) {
		define(name, func(ev *evaluation, args []any) (any, error) {
			if args[0] == nil || args[1] == nil {
				return false, nil
			}
			a, okA := args[0].(string)
			b, okB := args[1].(string)
			if !okA || !okB {
				return nil, fmt.Errorf("%s compares strings, not %s and %s", name[1:], describe(args[0]), describe(args[1]))
			}
			if err := ev.text(len(a) + len(b)); err != nil {
				return nil, err
			}
			return f(a, b), nil
		})
	}
	onTexts("#contains", strings.Contains)
	onTexts("#startsWith", strings.HasPrefix)
	onTexts("#endsWith", strings.HasSuffix)
	return table
}()

// library calls the builtin as the library has it.
func library(name string, args []any) (any, error) {
	b := builtin.Builtins[builtin.Index[name]]
	switch {
	case b.Fast != nil:
		if len(args) != 1 {
			return nil, fmt.Errorf("%s takes one argument", name)
		}
		return b.Fast(args[0]), nil
	case b.Safe != nil:
		out, _, err := b.Safe(args...)
		return out, err
	default:
		return b.Func(args...)
	}
}

func free(_ *evaluation, name string, args []any) (any, error) { return library(name, args) }

// shallow pays for the length of each argument.
func shallow(ev *evaluation, name string, args []any) (any, error) {
	for _, arg := range args {
		if err := ev.spend(length(arg, 16)); err != nil {
			return nil, err
		}
	}
	return library(name, args)
}

// bytewise pays for each byte.
func bytewise(ev *evaluation, name string, args []any) (any, error) {
	for _, arg := range args {
		if err := ev.spend(length(arg, 1)); err != nil {
			return nil, err
		}
	}
	return library(name, args)
}

// deep pays for every part of each argument.
func deep(ev *evaluation, name string, args []any) (any, error) {
	for _, arg := range args {
		n, err := ev.look(arg)
		if err == nil {
			err = ev.product(n, 2)
		}
		if err != nil {
			return nil, err
		}
	}
	return library(name, args)
}

// quadratic pays for comparing every element with every other.
func quadratic(ev *evaluation, name string, args []any) (any, error) {
	for _, arg := range args {
		n, err := ev.look(arg)
		if err == nil {
			err = ev.product(n, length(arg, 1))
		}
		if err != nil {
			return nil, err
		}
	}
	return library(name, args)
}

// length is a list's number of elements, or a text's of units of so many bytes, plus one.
func length(x any, unit int) int64 {
	switch x := x.(type) {
	case nil, bool, int, float64:
		return 1
	case string:
		return 1 + int64(len(x)/unit)
	case []any:
		return 1 + int64(len(x))
	}
	if v := reflect.ValueOf(x); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return 1 + int64(v.Len())
	}
	return 1
}

// compare pays for comparing a with b.
func (ev *evaluation) compare(a, b any) error {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return ev.text(min(len(x), len(y)))
		}
		return nil
	}
	switch a.(type) {
	case nil, bool, int, float64:
		return nil
	}
	switch b.(type) {
	case nil, bool, int, float64, string:
		return nil
	}
	if _, err := ev.look(a); err != nil {
		return err
	}
	_, err := ev.look(b)
	return err
}

func isList(x any) bool {
	if _, ok := x.([]any); ok {
		return true
	}
	return x != nil && reflect.TypeOf(x).Kind() == reflect.Slice
}

// listOf checks what a loop runs over and pays for all its rounds.
func listOf(ev *evaluation, args []any) (any, error) {
	if !isList(args[1]) {
		return nil, fmt.Errorf("this takes a list, not %s", describe(args[1]))
	}
	return args[1], ev.product(length(args[1], 1), int64(args[0].(int)))
}

// indexOf keeps numbers that are no integers, and integers that processors
// convert differently, from becoming indexes.
func indexOf(_ *evaluation, args []any) (any, error) {
	f, ok := args[0].(float64)
	if !ok {
		return args[0], nil
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return nil, errors.New("an index must be a whole number")
	}
	return int(f), nil
}

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

func matched(ev *evaluation, args []any) (any, error) {
	switch text := args[1].(type) {
	case nil:
		return nil, nil
	case string:
		return text, ev.product(int64(len(text)+1), int64(args[0].(int)/4+1))
	}
	return nil, fmt.Errorf("matches takes a string, not %s", describe(args[1]))
}

func rangeOf(ev *evaluation, args []any) (any, error) {
	from, okFrom := args[0].(int)
	to, okTo := args[1].(int)
	if !okFrom || !okTo {
		return nil, fmt.Errorf("a range is between integers, not %s and %s", describe(args[0]), describe(args[1]))
	}
	if to < from {
		return []any{}, nil
	}
	if uint64(to)-uint64(from) >= stepBudget {
		return nil, errBudget
	}
	n := to - from + 1
	if err := ev.spend(int64(n)); err != nil {
		return nil, err
	}
	out := make([]any, n)
	for i := range out {
		out[i] = from + i
	}
	return out, nil
}

func in(ev *evaluation, args []any) (any, error) {
	if isList(args[1]) {
		if _, err := ev.look(args[1]); err != nil {
			return nil, err
		}
	}
	return runtime.In(args[0], args[1]), nil
}

func plus(ev *evaluation, args []any) (any, error) {
	if a, ok := args[0].(string); ok {
		if b, ok := args[1].(string); ok {
			if err := ev.text(len(a) + len(b)); err != nil {
				return nil, err
			}
			return a + b, nil
		}
	}
	return add(ev, args)
}

var errOverflow = errors.New("the result is outside the range of int")

// arithmetic refuses to leave the integers, where the library wraps around.
func arithmetic(whole func(a, b int) (int, bool), other func(a, b any) any) func(*evaluation, []any) (any, error) {
	return func(_ *evaluation, args []any) (any, error) {
		a, okA := args[0].(int)
		b, okB := args[1].(int)
		if !okA || !okB {
			return other(args[0], args[1]), nil
		}
		n, exact := whole(a, b)
		if !exact {
			return nil, errOverflow
		}
		return n, nil
	}
}

var add = arithmetic(func(a, b int) (int, bool) { return a + b, (a+b > a) == (b > 0) }, runtime.Add)

func times(a, b int) (int, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	n := a * b
	return n, n/b == a && !(a == -1 && b == math.MinInt) && !(b == -1 && a == math.MinInt)
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
