package graph

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	exprcompiler "github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	exprparser "github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"

	"github.com/belay-run/belay/value"
)

// stateName is how a guard names the state.
const stateName = "state"

// compilation compiles one source. A guard (channels set) sees state, changed and
// version; any other expression sees free variables.
type compilation struct {
	source   string
	channels map[string]*Channel
	guard    bool
	free     Variables

	wrongs    []wrong
	unknown   bool              // a name is unknown, so that checking types says nothing more
	names     map[string]bool   // what the program reads
	mentioned map[string]bool   // names and the arguments of changed and version
	lets      map[string]bool   // what the expression itself declares
	inner     map[ast.Node]bool // identifiers that their parent already accounts for
	typed     int               // types built so far
}

// wrong is one reason why a source does not compile.
type wrong struct {
	code   string
	reason string
}

func (c *compilation) wrong(code string, node ast.Node, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if node != nil {
		reason = fmt.Sprintf("%s (column %d)", reason, node.Location().From+1)
	}
	w := wrong{code, reason}
	if !slices.Contains(c.wrongs, w) {
		c.wrongs = append(c.wrongs, w)
	}
}

// engineFailed is the reason when the library panics over a source.
const engineFailed = "the expression engine cannot read it: write it another way"

func (c *compilation) compile() (e *Expression, wrongs []wrong) {
	defer func() {
		if recover() != nil {
			c.wrong(codeBadGuard, nil, engineFailed)
			e, wrongs = nil, c.wrongs
		}
	}()
	if len(c.source) > maxExpression {
		c.wrong(codeBadGuard, nil, "it has %d bytes, the limit is %d: let a node compute it", len(c.source), maxExpression)
		return nil, c.wrongs
	}
	c.names, c.mentioned, c.lets = map[string]bool{}, map[string]bool{}, map[string]bool{}
	c.inner = map[ast.Node]bool{}
	tree, err := c.parse()
	if err != nil {
		c.failed(err)
		return nil, c.wrongs
	}
	ast.Walk(&tree.Node, visit(c.examine))
	ast.Walk(&tree.Node, visit(c.examineName))
	// The types are checked on a tree of their own: what they would allow the
	// compiler to assume does not hold for a field that was never written.
	if !c.unknown {
		if _, err := checker.Check(tree, c.checkConfig()); err != nil {
			c.failed(err)
		}
	}
	if len(c.wrongs) > 0 {
		return nil, c.wrongs
	}
	if tree, err = c.parse(); err == nil {
		ast.Walk(&tree.Node, visit(c.meter))
		e = &Expression{source: c.source, steps: stepBudget, names: slices.Sorted(maps.Keys(c.names))}
		for _, name := range e.names {
			e.slots = append(e.slots, c.slot(name))
		}
		if e.program, err = exprcompiler.Compile(tree, runConfig()); err == nil {
			return e, nil
		}
	}
	c.failed(err)
	return nil, c.wrongs
}

// parse never sees the variables, so that a variable may have the name of a builtin.
func (c *compilation) parse() (*exprparser.Tree, error) {
	return exprparser.ParseWithConfig(c.source, &conf.Config{
		MaxNodes: maxExpressionNodes, Disabled: deniedBuiltins, Builtins: allowedBuiltins,
		DisableIfOperator: false,
	})
}

func (c *compilation) failed(err error) {
	// The library puts a stack behind the first line when it fails itself.
	reason, _, _ := strings.Cut(err.Error(), "\n")
	code := codeBadGuard
	var at *file.Error
	if errors.As(err, &at) {
		if strings.HasPrefix(at.Message, "unknown field ") {
			code = codeUnknownGuardField
		}
		message := at.Message
		if message == `unexpected token Operator("=")` {
			message = `"=" compares nothing: compare with ==`
		}
		reason = fmt.Sprintf("%s (column %d)", message, at.Column+1)
	}
	c.wrong(code, nil, "%s", reason)
}

// slot is the name of a variable in the program's environment.
func (c *compilation) slot(name string) string {
	if c.guard {
		return stateName + "." + name
	}
	return name
}

// examine collects the names that are read and refuses what is not available.
func (c *compilation) examine(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.MemberNode:
		if property, ok := n.Property.(*ast.StringNode); ok && c.isState(n.Node) {
			c.inner[n.Node] = true
			c.read(n, property.Value)
		}
	case *ast.VariableDeclaratorNode:
		c.lets[n.Name] = true
	case *ast.BytesNode:
		c.wrong(codeBadGuard, n, "bytes are not available: write a string")
	case *ast.CallNode:
		c.examineCall(n)
	case *ast.BinaryNode:
		switch n.Operator {
		case "**", "^":
			c.wrong(codeBadGuard, n, "%s is not available, since its last digits differ between processors: multiply", n.Operator)
		case "matches":
			if _, ok := n.Right.(*ast.StringNode); !ok {
				c.wrong(codeBadGuard, n, "a pattern must be a literal string")
			}
		}
	}
}

func (c *compilation) isState(node ast.Node) bool {
	identifier, ok := node.(*ast.IdentifierNode)
	return c.guard && ok && identifier.Value == stateName
}

// read notes that a state name is read.
func (c *compilation) read(node ast.Node, name string) {
	c.names[name] = true
	c.mention(node, name)
}

func (c *compilation) mention(node ast.Node, name string) {
	c.mentioned[name] = true
	if c.channels[name] == nil {
		c.wrong(codeUnknownGuardField, node, "%q is neither an input nor a field: declare it, or name one of %s", name, list(sortedKeys(c.channels)))
	}
}

func (c *compilation) examineCall(n *ast.CallNode) {
	callee, ok := n.Callee.(*ast.IdentifierNode)
	if !ok {
		c.wrong(codeBadGuard, n, "only the functions of the language can be called")
		c.unknown = true
		return
	}
	if !c.guard || callee.Value != "changed" && callee.Value != "version" {
		return
	}
	c.inner[callee] = true
	if len(n.Arguments) == 1 {
		if name, ok := n.Arguments[0].(*ast.StringNode); ok {
			c.mention(n, name.Value)
			return
		}
	}
	c.wrong(codeBadGuard, n, `%s takes one literal name, as in %s("total")`, callee.Value, callee.Value)
}

// examineName refuses names that mean nothing, and the state as a whole: what a
// guard reads must be known before it runs, so that only that is decoded.
func (c *compilation) examineName(node *ast.Node) {
	n, ok := (*node).(*ast.IdentifierNode)
	if !ok || c.inner[n] || c.lets[n.Value] {
		return
	}
	if _, declared := c.free[n.Value]; declared {
		c.names[n.Value] = true
		return
	}
	c.unknown = true
	why, denied := deniedReasons[n.Value]
	switch {
	case c.isState(n):
		c.wrong(codeBadGuard, n, `name the field, as in state.total or state["sub-total"]`)
	case denied:
		c.wrong(codeBadGuard, n, "%s is not available: %s", n.Value, why)
	case c.guard:
		c.wrong(codeBadGuard, n, "there is nothing called %s: fields are named as in state.total", n.Value)
	default:
		c.wrong(codeBadGuard, n, "there is nothing called %s: use %s", n.Value, list(sortedKeys(c.free)))
	}
}

// checkConfig types the environment from the schemas.
func (c *compilation) checkConfig() *conf.Config {
	config := &conf.Config{
		ShortCircuit: true, Disabled: deniedBuiltins, Builtins: allowedBuiltins,
		Functions: conf.FunctionsTable{},
	}
	env := types.Map{}
	if c.guard {
		config.Functions = guardFunctions
		config.Expect, config.ExpectAny = reflect.Bool, true
		fields := types.Map{}
		for name := range c.names {
			fields[name] = types.Any
			if ch := c.channels[name]; ch != nil {
				fields[name] = c.typeOf(ch.Schema, 0)
			}
		}
		env[stateName] = fields
	}
	for name, schema := range c.free {
		env[name] = types.Any
		if c.names[name] {
			env[name] = c.typeOf(schema, 0)
		}
	}
	config.WithEnv(env)
	return config
}

// maxTypes bounds what typing one expression may cost: a schema may refer to itself.
const maxTypes = 2000

// typeOf is the type a schema promises, Any where it promises none. null is left
// out, since every field may be nil.
func (c *compilation) typeOf(s *value.Schema, depth int) types.Type {
	if c.typed++; s == nil || depth > 8 || c.typed > maxTypes {
		return types.Any
	}
	allowed := slices.DeleteFunc(slices.Clone(s.Types()), func(t string) bool { return t == "null" })
	if slices.Contains(allowed, "number") {
		allowed = slices.DeleteFunc(allowed, func(t string) bool { return t == "integer" })
	}
	if len(allowed) != 1 {
		return types.Any
	}
	switch allowed[0] {
	case "boolean":
		return types.Bool
	case "integer":
		return types.Int
	case "number":
		return types.Float64
	case "string":
		return types.String
	case "array":
		return types.Array(c.typeOf(s.Items(), depth+1))
	}
	object := types.Map{}
	for _, name := range s.Properties() {
		property, _ := s.Property(name)
		object[name] = c.typeOf(property, depth+1)
	}
	if _, closed := s.Property("\x00"); !closed {
		object[types.Extra] = types.Any
	}
	return object
}

// visit makes a function a visitor of a tree, children first.
type visit func(node *ast.Node)

// Visit implements ast.Visitor.
func (v visit) Visit(node *ast.Node) { v(node) }

// runConfig compiles without types.
func runConfig() *conf.Config {
	config := &conf.Config{ShortCircuit: true, Builtins: allowedBuiltins, Functions: meteredFunctions}
	config.WithEnv(map[string]any{})
	return config
}
