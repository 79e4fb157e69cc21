// Package lifecycle is the engine: it starts runs, claims what is due, executes
// nodes and commits what came of it.
//
// A Client validates and inserts, reads, and signals: Resolve and Cancel are mutations that
// need no claim. An Engine drives. Its parts, and what each may rely on:
//
//   - a session is one stretch of claiming with its own slots. One claim is in flight at a
//     time, and whoever frees a slot claims for it;
//   - the dispatcher, of a Run, says when its session looks for due runs: for starts and releases
//     here at once, for announcements, for timers that come before the next poll, and for the
//     poll. It holds claims back while the engine is paused or the backend is away;
//   - a vehicle drives one claimed run: plan, execute, settle, commit, until the run parks,
//     finishes or has used up its commit budget. One goroutine at a time holds its baton,
//     the right to touch the run; whoever is the last to finish a superstep takes it on. Nobody
//     waits for a node, so one that never returns costs its goroutine and nothing else;
//   - an attempt is one node at work, with a deadline and a context whose cause says why it
//     ended: *TimeoutError, ErrClaimLost, ErrRunCancelled or ErrShutdown;
//   - the committer sends the commits of a session's vehicles: alone while the backend keeps up,
//     together when they come faster, each with its own fence and its own answer;
//   - the limits let a node of a limited type wait for its turn, without a goroutine;
//   - the heartbeat refreshes every claim the engine holds, and gives up one that it could
//     not refresh, before anybody else may take it.
//
// Two rules make this safe without any of the parts being trusted: every write goes through a
// fenced commit or a serialized mutation, and a commit whose answer was lost is sent again
// under the same id. The instants of commits derive from the instant that ClaimDue named
// and the time that passed here since, never from what a host's clock says of the day.
//
// Time comes from the Clock, goroutines and waiting from one scheduler, ids from IDs: tests
// replace them.
package lifecycle
