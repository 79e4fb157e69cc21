package belay

import "github.com/belay-run/belay/backend/postgres" // want: the root may not import backend/postgres

var _ = postgres.New
