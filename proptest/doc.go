// Package proptest proves backends: ours and anybody's.
//
// A backend is handed in as a function that opens an empty store, and two tests are the
// whole of it:
//
//	func open(t proptest.T) proptest.Opened {
//		store, err := mine.Open(t.TempDir())
//		...
//		t.Cleanup(func() { _ = store.Close() })
//		return proptest.Opened{Store: store}
//	}
//
//	func TestConformance(t *testing.T) { proptest.Conformance(t, open, proptest.Options{}) }
//	func TestHistories(t *testing.T)   { proptest.Check(t, open, proptest.Options{}) }
//
// # Conformance
//
// [Conformance] has a case for every clause of the contract (docs/contract.md): a rule in
// one sentence, tried at its boundaries, with the exact answer, the exact instants and
// counters, and, where a call is refused, the proof that nothing else changed. A case's id
// begins with the clause, "K3.max-attempts", so that a failure leads to the sentence that
// is broken. Each case opens a store of its own.
//
// What the contract's own operations cannot bring about (a damaged row, a lock that
// somebody else holds, the store's clock, a restart) is done by [Hooks], if the opener
// supplies them. A case that needs a hook or a feature that is not there is reported as
// untested. It never counts as passed: read the [Report], not only the exit code.
//
// # Check
//
// [Check] makes random histories: three workers claim, commit, refresh, release and
// abandon under what they last heard, which may be long out of date; commits are sent
// again because a reply was lost; signals, operators, retention and a virtual clock come
// between. It prefers the corners: a TTL exactly reached and a microsecond later, counters
// at their maximum, runs eligible since the same instant, both classes due at once.
//
// After every step three things are held against each other: the answer, everything the
// store shows, and a model that says what both must be. The model is naive on purpose. It
// takes types and constants from the packages it judges and no logic at all, so that a
// fault would have to be made twice to go unseen. Beside it, and without it, the
// invariants C1 to C12 are judged from what the store answers and shows.
//
// A failure is the shortest history that was found, one line a call:
//
//	T5: the answer is "replayed"; it must be "stale fence (stored 3, presented 1, same token)"
//
//	what happened:
//	  1. tenantless inserts r1 at +0s (due now)  ->  stored
//	  2. ann claims up to 1 at +0s (ttl 1m0s, max attempts 2)  ->  outcomes (L1 = r1, attempt 1)
//	  3. ann commits r1 under L1 to retain, sequence 2 at +0s  ->  ok
//	  4. ann commits r1 under L1 to retain, sequence 3 at +0s  ->  ok
//	  5. commits again r1 under L1 to retain, sequence 2  ->  replayed
//
// with the flags that replay it. Instants are told from the history's start, and L1 is the
// first lease: a token is never printed. A passing run prints what it did and which
// corners it met, and fails when an action or a corner was starved. RAPID_CHECKS and
// RAPID_STEPS say how many histories there are and how long they get.
//
// With [Hooks.Trouble] calls fail under way, in Check too: each must have one effect or none, and be told
// truly.
//
// A history that is worth keeping becomes a file, which a [Player] plays; [Counterexamples] plays those
// that the kit comes with.
//
// # Interleave
//
// [Interleave] is for a store that can stop between the steps of an operation: its operations become
// coroutines that take turns, as rapid draws, and then in every order that a small scope has. What
// was answered must be explained by one order of the calls, in which the model answers the
// same. A failure tells where each call stood.
//
// # Linearizable
//
// [Linearizable] lets goroutines call one store, and looks for such an order of the calls on each run. A
// failing history is drawn as a page.
//
// # Without a test
//
// The kit needs no test framework: [Verify] runs all of it and reports, and [Attempt] makes a
// [T] and says whether what it ran passed. With one, [Fuzz] makes a native fuzz test of Check.
package proptest
