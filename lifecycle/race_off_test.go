//go:build !race

package lifecycle_test

// snoozes is how often a run is made to snooze.
const snoozes = 100_000
