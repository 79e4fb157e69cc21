package graph

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/vm/runtime"
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
