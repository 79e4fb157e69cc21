//go:build race

package lifecycle_test

// snoozes is how often a run is made to snooze; the race detector makes each ten times as dear.
const snoozes = 10_000

// inFlightBytes is how much memory a run in flight may take; the race detector needs much itself.
const inFlightBytes = 100 << 10

// crashRuns is how many runs the crash tests take to their end: fewer only because the race detector makes each several times
// as dear. With as many as without it they pass, too.
const crashRuns = 300
