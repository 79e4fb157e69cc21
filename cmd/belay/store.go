package main

import (
	"fmt"
	"strings"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
)

// openStore opens the backend that a DSN names.
func openStore(dsn string) (backend.Store, error) {
	scheme, _, _ := strings.Cut(dsn, ":")
	switch {
	case dsn == "memory:":
		return memory.New(memory.Options{}), nil
	default:
		return nil, usage(fmt.Errorf("no backend is known for --db %s: (%q)", scheme, dsn), "use memory:")
	}
}
