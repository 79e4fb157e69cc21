// Package std holds the built-in node types: exec runs a command, http makes a request,
// set computes fields, sleep waits without holding anything, ask asks a person. A program of
// your own has them once it has called Register. docs/nodes.md describes the config, the reads
// and the writes of each, with an example.
//
// # Templates
//
// In their configs a string may hold expressions, ${...}, over what the node reads: the
// names under the node's reads in the graph. The expressions are those of guards
// (graph.CompileExpression). A string that is exactly one expression stands for the
// expression's value, whatever its type: "${count + 1}" is a number. A bare variable,
// "${order}", passes its value on untouched, with all digits. In any other string the
// values are put in as text: a string as it is, anything else as JSON. Where text is
// needed, null is refused, since an empty text in a command or an address is seldom what
// was meant. This has it all the same:
//
//	${name ?? ''}
//
// "$${" is a literal "${".
//
// Expressions are compiled when a graph is checked, so a bad one is found by its path
// before anything runs. An expression that fails when it runs is a permanent failure.
package std

import (
	"github.com/belay-run/belay/node"
)

// Nodes are the built-in node types, each in version 1: ask, exec, http, set, sleep. Their
// configs are described in docs/nodes.md.
func Nodes() []node.Type {
	return []node.Type{askType(), execType(), httpType(), setType(), sleepType()}
}

// Register adds the built-in node types to a registry and returns it. A registry that it
// was not called for has none of them: graphs that use them are refused with
// unknown_node_type, and engines that have that registry hand their runs back.
func Register(r *node.Registry) *node.Registry { return r.Add(Nodes()...) }
