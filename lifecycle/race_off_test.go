//go:build !race

package lifecycle_test

// snoozes is how often a run is made to snooze.
const snoozes = 100_000

// inFlightBytes is how much memory a run in flight may take; the race detector needs much itself.
const inFlightBytes = 20 << 10

// crashRuns is how many runs the crash tests take to their end.
const crashRuns = 2000
