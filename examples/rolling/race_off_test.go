//go:build unix && !race

package rolling

import "time"

const (
	// ttl is when the orders of a process that was killed go on. It is long enough for a busy machine, on
	// which a claim that cannot be refreshed in time would be taken for that of a process that was killed.
	ttl = 5 * time.Second
	// slack is what a busy machine may be late by.
	slack = 3 * time.Second
)
