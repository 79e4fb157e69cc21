package memory

import (
	"context"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// FetchRun reads the last committed document (clause R4).
func (s *Store) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	info, err := s.InspectRun(ctx, scope, id)
	return info.Document, err
}

// InspectRun reads the document with its operational state (clause R4).
func (s *Store) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return backend.Info{}, err
	}
	if err := s.enter(ctx, "inspect: begun"); err != nil {
		return backend.Info{}, err
	}
	r, stored, err := s.visible(scope, id)
	if err != nil {
		return backend.Info{}, err
	}
	if _, err := stored.read(); err != nil {
		return backend.Info{}, err
	}
	return stored.info(r.owner), nil
}
