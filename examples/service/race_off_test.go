//go:build unix && !race

package main

import "time"

const (
	// raced: the test looks for data races, and so do the replicas on PostgreSQL.
	raced = false
	// ttl is when the orders of the replica that was killed go on. It is long enough for a busy machine, on which
	// what is held too long without a commit would be taken for what kills its process.
	ttl = 4 * time.Second
	// poll is how soon a replica sees what others did on a file, at what cost in reads.
	poll = 100 * time.Millisecond
	// patience is how long customers wait for an answer, or for an order to move.
	patience = time.Minute
)
