//go:build !unix

package std_test

// leave is a command of the tests on systems with process groups.
func leave([]string) int { return 93 }
