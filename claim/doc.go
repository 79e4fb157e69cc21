// Package claim is the claim accounting of a run: who may commit, since when,
// how often it was tried, and when it is next due. It is pure: the clock and new
// tokens are arguments.
package claim
