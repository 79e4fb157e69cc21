package graph

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/expr-lang/expr/vm/runtime"
)

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
