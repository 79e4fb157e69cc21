// Command release is what a user's program has of the backend in it.
package main

import (
	"context"
	"os"

	"github.com/belay-run/belay/backend/sqlite"
)

func main() {
	if s, err := sqlite.Open(context.Background(), os.Args[1], sqlite.Options{}); err == nil {
		_ = s.Close()
	}
}
