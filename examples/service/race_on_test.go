//go:build race

package main

// raced: the test looks for data races, and so does the binary that it builds.
const raced = true
