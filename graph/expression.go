package graph

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/belay-run/belay/value"
)

// Expression is a compiled, side-effect-free expression: the one engine behind
// guards and behind "${...}" in the configs of built-in nodes. Only builtins on an
// allow-list are reachable: no clock, no randomness, no I/O, nothing that depends on
// map order. Evaluation has a step and a memory budget. Safe for concurrent use.
type Expression struct {
	source  string
	names   []string // what it reads, sorted
	slots   []string // names as the program knows them
	program *vm.Program
	pool    sync.Pool // of *evaluation
}

// ErrExpression is matched by every *ExpressionError.
var ErrExpression = errors.New("belay: expression")

// ErrBudget is matched by the *ExpressionError of an evaluation that was stopped
// because it used up its budget.
var ErrBudget = errors.New("belay: the expression's budget is used up")

// ExpressionError says why an expression does not compile, or why it failed. The
// same expression over the same values fails again.
type ExpressionError struct {
	Expression string
	Reason     string

	budget bool
}

func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%v %q: %s", ErrExpression, shorten(e.Expression), e.Reason)
}

// Is makes errors.Is(err, ErrExpression) true, and ErrBudget when it is the cause.
func (e *ExpressionError) Is(target error) bool {
	return target == ErrExpression || e.budget && target == ErrBudget
}

// Variables declares what an expression may name; a nil schema admits any value.
type Variables map[string]*value.Schema

// CompileExpression compiles source over free variables: each is an identifier of
// its own, of the type its schema says. What does not compile, or names a variable
// that is not declared, answers *ExpressionError with every reason found.
func CompileExpression(source string, vars Variables) (*Expression, error) {
	c := compilation{source: source, free: vars}
	e, wrongs := c.compile()
	if len(wrongs) > 0 {
		reasons := make([]string, len(wrongs))
		for i, w := range wrongs {
			reasons[i] = w.reason
		}
		return nil, &ExpressionError{Expression: source, Reason: strings.Join(reasons, "; ")}
	}
	return e, nil
}

// Names lists the variables the expression reads, sorted. It is read-only.
func (e *Expression) Names() []string { return e.names }

// Source is the text that was compiled.
func (e *Expression) Source() string { return e.source }

// Eval evaluates over values by name (absent: nil). Only the values that the
// expression names are decoded. The result is canonical. Errors are *ExpressionError.
func (e *Expression) Eval(values map[string]value.Value) (value.Value, error) {
	result, ev, err := e.run(nil, func(name string) value.Value { return values[name] })
	if err != nil {
		return nil, err
	}
	defer e.release(ev)
	v, err := ev.encode(result)
	if err != nil {
		return nil, e.failure(err)
	}
	return v, nil
}

// guard evaluates to true or false over a run's state.
func (e *Expression) guard(s State) (bool, error) {
	result, ev, err := e.run(s, s.Value)
	if err != nil {
		return false, err
	}
	e.release(ev)
	fired, ok := result.(bool)
	if !ok {
		return false, &ExpressionError{
			Expression: e.source,
			Reason:     fmt.Sprintf("it gave %s, not true or false: compare with ==, or give a default with ??", describe(result)),
		}
	}
	return fired, nil
}

// run evaluates and hands out the evaluation, which the caller releases when there
// was no error.
func (e *Expression) run(s State, get func(string) value.Value) (any, *evaluation, error) {
	ev, _ := e.pool.Get().(*evaluation)
	if ev == nil {
		ev = &evaluation{env: make(map[string]any, len(e.names)+1)}
		ev.env[contextName] = ev
	}
	ev.state, ev.left = s, stepBudget
	for i, name := range e.names {
		v, err := decodeFor(get(name))
		if err != nil {
			e.release(ev)
			return nil, nil, &ExpressionError{Expression: e.source, Reason: fmt.Sprintf("the value of %s does not decode: %v", name, err)}
		}
		ev.env[e.slots[i]] = v
	}
	ev.machine.MemoryBudget = memoryBudget
	result, err := ev.machine.Run(e.program, ev.env)
	if err != nil {
		e.release(ev)
		return nil, nil, e.failure(err)
	}
	return result, ev, nil
}

// release gives the evaluation back without what it held of the state.
func (e *Expression) release(ev *evaluation) {
	ev.state = nil
	for _, slot := range e.slots {
		ev.env[slot] = nil
	}
	clear(ev.machine.Stack[:cap(ev.machine.Stack)])
	clear(ev.machine.Variables)
	e.pool.Put(ev)
}

func (e *Expression) failure(err error) error {
	budget := errors.Is(err, errBudget)
	reason := err.Error()
	var at *file.Error
	if errors.As(err, &at) {
		if at.Message == "memory budget exceeded" {
			budget = true
		}
		reason = fmt.Sprintf("%s (column %d)", at.Message, at.Column+1)
	}
	if budget {
		reason = budgetReason
	}
	return &ExpressionError{Expression: e.source, Reason: reason, budget: budget}
}

// decodeFor decodes a state value for the engine: as value.Decode, with int in the
// place of int64, since that is what literals and lengths are there.
func decodeFor(v value.Value) (any, error) {
	if v == nil {
		return nil, nil
	}
	data, err := value.Decode(v)
	if err != nil {
		return nil, err
	}
	return native(data), nil
}

func native(data any) any {
	switch x := data.(type) {
	case int64:
		return int(x)
	case []any:
		for i, item := range x {
			x[i] = native(item)
		}
	case map[string]any:
		for name, item := range x {
			if _, ok := item.(string); !ok {
				x[name] = native(item)
			}
		}
	}
	return data
}

// An int must hold every int64, or a guard would decide otherwise on one machine of
// a fleet than on the next: the package does not compile where it does not.
const _ = uint(1<<63 - 1)

func describe(result any) string {
	switch result.(type) {
	case nil:
		return "nil"
	case string:
		return "a string"
	case int, float64:
		return "a number"
	case map[string]any:
		return "an object"
	default:
		return "a list"
	}
}
