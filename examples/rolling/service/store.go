package main

import (
	"context"
	"strings"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
)

// openStore opens the database, with the schema brought up to what this release knows.
func openStore(ctx context.Context, cfg config) (backend.Store, func() error, error) {
	if strings.HasPrefix(cfg.db, sqlite.Scheme) {
		s, err := sqlite.Open(ctx, cfg.db, sqlite.Options{WriteFormat: cfg.format})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	s, err := postgres.Open(ctx, cfg.db, postgres.Options{Schema: cfg.schema, WriteFormat: cfg.format})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
