// Package belaytest helps to test programs that run graphs with belay: an engine on memory with a
// clock that the test moves, and assertions on runs and their history.
//
//	func TestOrder(t *testing.T) {
//		e := belaytest.New(t, belay.Config{Nodes: nodes})
//		ref := e.MustPublishFile("order.yaml")
//		r := e.MustStart(ref, Order{ID: 42})
//		e.Rest(r.ID)            // through every retry and sleep, at once
//		e.MustResolve(r.ID, true)
//		e.Rest(r.ID)
//		e.WantDone(r.ID, Receipt{Paid: true})
//	}
//
// An Engine is a *belay.Engine, so everything a program does with one can be done in its test.
// What begins with Must fails the test at once when it does not work; what begins with Want reports
// a difference and lets the test go on.
//
// Two clocks serve. With the virtual one, which is the default, nothing happens until the test says so:
// Quiet drives what is due, Advance lets time pass, Rest does both for one run. Where the code
// under test waits by itself, for a timer or another goroutine, use testing/synctest: in a bubble
// the system's clock is virtual, so give the engine lifecycle.SystemClock and let it Serve.
package belaytest
