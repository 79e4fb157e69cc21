// Package checkpoint says when a commit may be applied (the fence) and what it
// does to the claim (the schedule). It is pure.
package checkpoint
