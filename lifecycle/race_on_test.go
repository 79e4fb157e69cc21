//go:build race

package lifecycle_test

// snoozes is how often a run is made to snooze; the race detector makes each ten times as dear.
const snoozes = 10_000

// inFlightBytes is how much memory a run in flight may take; the race detector needs much itself.
const inFlightBytes = 100 << 10

// crashRuns is how many runs the crash tests take to their end; the race detector makes each ten times as dear.
const crashRuns = 300
