package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the processes that some tests start.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}
