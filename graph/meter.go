package graph

import (
	"regexp/syntax"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
)

// meter rewrites a tree so that everything whose cost grows with the data pays for
// it: each loop for its list times its body, each operation on texts and lists for
// their size.
func (c *compilation) meter(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.MemberNode:
		if property, ok := n.Property.(*ast.StringNode); ok {
			if c.isState(n.Node) {
				ast.Patch(node, &ast.IdentifierNode{Value: c.slot(property.Value)})
			}
			return
		}
		n.Property = index(n.Property)
	case *ast.SliceNode:
		n.From, n.To = index(n.From), index(n.To)
	case *ast.BinaryNode:
		c.meterOperator(node, n)
	case *ast.UnaryNode:
		if n.Operator == "-" && !number(n.Node) {
			*node = metered("#-", n, &ast.IntegerNode{Value: 0}, n.Node)
		}
	case *ast.BuiltinNode:
		meterBuiltin(node, n)
	case *ast.CallNode:
		n.Arguments = append([]ast.Node{contextNode()}, n.Arguments...)
	}
}

func contextNode() ast.Node { return &ast.IdentifierNode{Value: contextName} }

func metered(function string, at ast.Node, arguments ...ast.Node) ast.Node {
	call := &ast.CallNode{
		Callee:    &ast.IdentifierNode{Value: function},
		Arguments: append([]ast.Node{contextNode()}, arguments...),
	}
	call.SetLocation(at.Location())
	return call
}

func index(node ast.Node) ast.Node {
	if node == nil {
		return nil
	}
	if _, literal := node.(*ast.IntegerNode); literal {
		return node
	}
	return metered("#index", node, node)
}

func (c *compilation) meterOperator(node *ast.Node, n *ast.BinaryNode) {
	switch n.Operator {
	case "==", "!=", "<", "<=", ">", ">=":
		if literal(n.Left) || literal(n.Right) {
			return
		}
	case "+", "-", "*":
	case "in":
		if list, ok := n.Right.(*ast.ArrayNode); ok && !slices.ContainsFunc(list.Nodes, func(n ast.Node) bool { return !literal(n) }) {
			return
		}
	case "contains", "startsWith", "endsWith", "..":
	case "matches":
		pattern := n.Right.(*ast.StringNode).Value
		n.Left = metered("#matched", n, &ast.IntegerNode{Value: patternSize(pattern)}, n.Left)
		return
	default:
		return
	}
	*node = metered("#"+n.Operator, n, n.Left, n.Right)
}

func literal(node ast.Node) bool {
	switch node.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.StringNode:
		return true
	}
	return number(node)
}

func number(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

// patternSize is how many instructions a pattern compiles to: what matching costs
// for each byte at worst.
func patternSize(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 1
	}
	return len(program.Inst)
}

func meterBuiltin(node *ast.Node, n *ast.BuiltinNode) {
	if !builtin.Builtins[builtin.Index[n.Name]].Predicate {
		*node = metered(n.Name, n, n.Arguments...)
		return
	}
	body := 1
	for _, argument := range n.Arguments[1:] {
		if predicate, ok := argument.(*ast.PredicateNode); ok {
			body += size(predicate)
		}
	}
	n.Arguments[0] = metered("#list", n, &ast.IntegerNode{Value: body}, n.Arguments[0])
	switch n.Name {
	case "sortBy":
		*node = stableSortBy(n)
	case "sum":
		terms := n.Arguments[0]
		if len(n.Arguments) == 2 {
			terms = &ast.BuiltinNode{Name: "map", Arguments: n.Arguments}
		}
		*node = metered("#sum", n, terms)
	}
}

// stableSortBy sorts by keys computed first, since the library's own sort gives
// equal elements no order.
func stableSortBy(n *ast.BuiltinNode) ast.Node {
	const items = "\x00items"
	order := ast.Node(&ast.StringNode{Value: "asc"})
	if len(n.Arguments) == 3 {
		order = n.Arguments[2]
	}
	keys := &ast.BuiltinNode{Name: "map", Arguments: []ast.Node{&ast.IdentifierNode{Value: items}, n.Arguments[1]}}
	return &ast.VariableDeclaratorNode{
		Name: items, Value: n.Arguments[0],
		Expr: metered("#sortBy", n, &ast.IdentifierNode{Value: items}, keys, order),
	}
}

// size is what one round of a loop's body costs: an object costs as much memory as
// many other operations.
func size(node ast.Node) int {
	count := 0
	ast.Walk(&node, visit(func(n *ast.Node) {
		count++
		if _, object := (*n).(*ast.MapNode); object {
			count += 16
		}
	}))
	return count
}
