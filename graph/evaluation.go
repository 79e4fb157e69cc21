package graph

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/expr-lang/expr/vm"

	"github.com/belay-run/belay/value"
)

// What one evaluation may use. A step is about one operation of a predicate's body
// on one element, or sixteen bytes of a text; the memory budget counts elements of
// the lists and objects an expression makes.
const (
	stepBudget   = 2 << 20
	memoryBudget = 1 << 20

	maxExpression      = 16 << 10 // bytes of source: bounds the parser's recursion
	maxExpressionNodes = 1000
	maxValueDepth      = value.MaxDepth

	// contextName cannot be written in an expression.
	contextName = "\x00"
)

var errBudget = errors.New("budget")

const budgetReason = "it used up its budget of steps or memory: look at fewer elements, or let a node compute the answer"

// evaluation is one run of a program: its machine, environment and budget.
type evaluation struct {
	machine vm.VM
	env     map[string]any
	state   State
	left    int64
}

// spend uses up steps.
func (ev *evaluation) spend(steps int64) error {
	if steps < 0 || steps > ev.left {
		ev.left = 0
		return errBudget
	}
	ev.left -= steps
	return nil
}

// product uses up a times b steps.
func (ev *evaluation) product(a, b int64) error {
	if a > 0 && b > stepBudget/a {
		return errBudget
	}
	return ev.spend(a * b)
}

// text uses up the steps of looking through or copying n bytes.
func (ev *evaluation) text(n int) error { return ev.spend(1 + int64(n)/16) }

// look uses up the steps of looking at every part of x, and answers how many they were.
func (ev *evaluation) look(x any) (int64, error) {
	before := ev.left
	err := ev.walk(x, 0)
	return before - ev.left, err
}

func (ev *evaluation) walk(x any, depth int) error {
	if depth > maxValueDepth {
		return errBudget
	}
	switch x := x.(type) {
	case nil, bool, int, float64:
		return ev.spend(1)
	case string:
		return ev.text(len(x))
	case []any:
		if err := ev.spend(1); err != nil {
			return err
		}
		for _, item := range x {
			if err := ev.walk(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if err := ev.spend(1); err != nil {
			return err
		}
		for name, item := range x {
			if err := ev.text(len(name)); err != nil {
				return err
			}
			if err := ev.walk(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []int:
		return ev.spend(1 + int64(len(x)))
	case []string:
		for _, s := range x {
			if err := ev.text(len(s)); err != nil {
				return err
			}
		}
		return ev.spend(1)
	}
	return ev.walkOther(reflect.ValueOf(x), depth)
}

// walkOther takes what only builtins make: lists of lists, and groups.
func (ev *evaluation) walkOther(v reflect.Value, depth int) error {
	if err := ev.spend(1); err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := ev.walk(v.Index(i).Interface(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := ev.walk(it.Key().Interface(), depth+1); err != nil {
				return err
			}
			if err := ev.walk(it.Value().Interface(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode makes a result a state value.
func (ev *evaluation) encode(result any) (value.Value, error) {
	if _, err := ev.look(result); err != nil {
		return nil, err
	}
	plain, err := ungroup(result)
	if err != nil {
		return nil, err
	}
	v, err := value.Of(plain)
	if err != nil {
		return nil, fmt.Errorf("its result cannot be kept: %w", err)
	}
	return v, nil
}

// ungroup turns the groups that groupBy makes into objects.
func ungroup(x any) (any, error) {
	switch x := x.(type) {
	case nil, bool, int, float64, string:
		return x, nil
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			var err error
			if out[i], err = ungroup(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, item := range x {
			var err error
			if out[name], err = ungroup(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Map {
		return x, nil
	}
	out := make(map[string]any, v.Len())
	for it := v.MapRange(); it.Next(); {
		name, ok := it.Key().Interface().(string)
		if !ok {
			return nil, errors.New("its result has groups whose keys are not strings: group by string(...)")
		}
		item, err := ungroup(it.Value().Interface())
		if err != nil {
			return nil, err
		}
		out[name] = item
	}
	return out, nil
}
