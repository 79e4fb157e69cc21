// Package graph holds graph documents: what nodes a run executes, what they read
// and write, and which edges lead on. It parses, validates, compiles, hashes and
// draws them, and is pure.
//
// # From a text to a graph that runs
//
// Parse and ParseYAML read a Document; Publish holds it against a Catalog of node
// types, writes into it what the catalog says (contract versions, defaults of
// configs, reads and writes by name, timeouts), and gives a Compiled graph with
// canonical bytes and their hash. A published graph stands by itself: Load compiles
// the stored bytes as they stand, and no catalog can change what it means. Whether
// a binary can run it is another question, which package node answers.
//
// What is wrong with a document comes as Diagnostics, all at once, each with a
// stable code, a JSON Pointer and a sentence that says what to do. Check does the
// whole way for its diagnostics alone.
//
// # State
//
// Inputs and fields share one namespace, the state. Only the start of a run writes
// inputs; nodes write fields. A field's Reducer folds the writes of one superstep,
// in node-id order, into the committed value: see Reducer.Fold.
//
// # Guards
//
// An edge's guard decides whether the edge fires. It is an expression of
// github.com/expr-lang/expr that gives true or false:
//
//	len(state.recipes) > 0 and state["sub-total"] <= 100
//	any(state.items, .price > 10) or changed("items")
//	version("answer") >= 2 and (state.answer ?? false)
//
// It sees state (each field by name, as state.total or state["sub-total"], so that
// only what it names is decoded), changed("name") (the name was written since the
// guards were last evaluated) and version("name") (how many commits wrote it). A
// field that was never written and has no default is nil; comparing it with a
// number, or using it as true or false, fails the guard. Names and types are
// checked against the schemas when the graph is compiled.
//
// Integers that fit are 64-bit integers, all other numbers 64-bit floating point;
// an operation on one of each is done in floating point. An integer result that does
// not fit fails the guard.
//
// Of the language's functions those are left out that know the time, read files,
// give the members of an object an order (keys, values, toPairs), or make texts of
// any size (repeat), and so is the operator **. Loops run over lists. string and
// toJSON give canonical JSON, sort and sortBy keep the order of equal elements, and
// a pattern (matches) is a literal string. An evaluation has a budget: a loop costs
// the length of its list times the size of its body, and texts cost their length.
// One that uses it up fails with ErrBudget.
package graph
