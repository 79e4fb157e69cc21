//go:build !race

package sqlite_test

// checks is how many random histories are tried where nobody asked for a number of them.
const checks = "12"
