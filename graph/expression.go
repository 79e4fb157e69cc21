package graph

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
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
	steps   int64     // what one evaluation may use
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
	ev.state, ev.left = s, e.steps
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
	if cap(ev.machine.Stack) > 256 {
		ev.machine = vm.VM{}
	}
	clear(ev.machine.Stack[:cap(ev.machine.Stack)])
	clear(ev.machine.Variables)
	e.pool.Put(ev)
}

func (e *Expression) failure(err error) error {
	var at *file.Error
	located := errors.As(err, &at)
	if errors.Is(err, errBudget) || located && at.Message == "memory budget exceeded" {
		return &ExpressionError{Expression: e.source, Reason: budgetReason, budget: true}
	}
	reason := err.Error()
	if located {
		reason = fmt.Sprintf("%s (column %d)", plain(at.Message), at.Column+1)
	}
	if strings.Contains(reason, "nil") {
		reason += ": a field that was never written is nil, so test it with != nil or give a default with ??"
	}
	return &ExpressionError{Expression: e.source, Reason: reason}
}

// plain says in the words of an expression's author what went wrong, without data.
func plain(message string) string {
	if rest, ok := strings.CutPrefix(message, "interface conversion: interface {} is "); ok {
		is, not, _ := strings.Cut(rest, ", not ")
		message = fmt.Sprintf("a value is %s where %s is needed", typeName(is), typeName(not))
	} else if strings.HasPrefix(message, "cannot fetch ") {
		_, from, _ := cutLast(message, " from ")
		message = "a member of " + typeName(from) + " is read"
	} else if is, ok := strings.CutPrefix(message, "invalid operation: int("); ok {
		message = "a value is " + typeName(strings.TrimSuffix(is, ")")) + " where a number is needed"
	} else if rest, ok := strings.CutPrefix(message, "invalid operation: "); ok {
		words := strings.Fields(strings.ReplaceAll(rest, "interface {}", "any"))
		for i := range words {
			words[i] = typeName(words[i])
		}
		message = "there is no " + strings.Join(words, " ")
	}
	return message
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func typeName(goType string) string {
	switch strings.ReplaceAll(goType, "interface {}", "any") {
	case "nil", "<nil>":
		return "nil"
	case "string":
		return "a string"
	case "bool":
		return "true or false"
	case "int", "int64", "float64":
		return "a number"
	case "map[string]any":
		return "an object"
	case "[]any", "[]string", "[]int":
		return "a list"
	}
	return goType
}

// decodeFor decodes a state value for the engine: as value.Decode, with int in the
// place of int64, since that is what literals and lengths are there.
func decodeFor(v value.Value) (any, error) {
	if data, ok := scalar(v); ok {
		return data, nil
	}
	data, err := value.Decode(v)
	if err != nil {
		return nil, err
	}
	return native(data), nil
}

// scalar decodes the commonest canonical values without a decoder.
func scalar(v value.Value) (any, bool) {
	if len(v) == 0 {
		return nil, true
	}
	switch v[0] {
	case 'n':
		return nil, true
	case 't':
		return true, true
	case 'f':
		return false, true
	case '"':
		if text := v[1 : len(v)-1]; bytes.IndexByte(text, '\\') < 0 {
			return string(text), true
		}
	case '[', '{':
	default:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return int(n), true
		}
	}
	return nil, false
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
	case bool:
		return "true or false"
	default:
		return "a list"
	}
}
