// Package graphtest proves a graph of your own, with its real nodes, under everything that the
// engine promises to survive:
//
//	func TestOrder(t *testing.T) {
//		graphtest.Check(t, order, nodes, graphtest.EffectsOnce, graphtest.Finishes, graphtest.OutputsFit,
//			graphtest.Input(map[string]any{"id": 42}))
//	}
//
// [Check] runs the graph many times on the memory backend, with a virtual clock. First without any
// trouble; then with a crash before and after every commit of that history, one at a time; then
// with whatever rapid draws: nodes whose outcome is lost after they acted, that are called twice,
// that take hours, that come after their deadline, panic, or fail, once or for good; commits
// whose reply is lost; crashes; questions that are answered, or left to their deadline; a cancel. Every
// trouble comes a few times at most, so that a graph that copes with it finishes.
//
// # Effects
//
// A node may run more than once for one task. Whatever it does outside must be safe to repeat: an
// external system is asked under node.IdempotencyKey, which is the same each time. Check
// cannot see what a node does outside, so the fakes that a test gives its nodes tell it, by
// [Effect]: they say under which key they were asked, and what for. Check is then the external system,
// and [EffectsOnce] finds an effect without a key, one task that used two keys, two tasks that
// used one, and a key under which something else was asked the second time. Reads of
// node.IdempotencyKey are seen without any fake: [ReadsKey] names the nodes that must
// read it in every attempt.
//
// A failure tells the history, one line for everything that happened, and how to replay it.
package graphtest
