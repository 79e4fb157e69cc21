package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
)

// noting is a store that keeps, beside each claim it hands out, which process has it, so that
// another process can tell whether it is gone. The note is written with the claim in hand: one who
// only waits for a run never stands in it.
type noting struct {
	*sqlite.Store
	self sqlite.Driver
}

// Features declares the store's, with claims that pass through here.
func (n *noting) Features() backend.Features {
	f := n.Store.Features()
	f.ClaimDocuments = n
	return f
}

// ClaimDue claims and notes.
func (n *noting) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	batch, err := n.Store.ClaimDue(ctx, p)
	if err == nil {
		err = n.note(ctx, batch.Leases)
	}
	return batch, err
}

// ClaimDueDocuments claims and notes.
func (n *noting) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	batch, err := n.Store.ClaimDueDocuments(ctx, p)
	if err == nil {
		err = n.note(ctx, batch.Leases)
	}
	return batch, err
}

// note writes the notes, or gives the claims back.
func (n *noting) note(ctx context.Context, leases []claim.Lease) error {
	for _, lease := range leases {
		if err := n.NoteDriver(ctx, lease.Run, n.self); err != nil {
			for _, back := range leases {
				err = errors.Join(err, n.ReleaseClaim(ctx, back.Run, back.Token, claim.ReleasePolicy{Refund: true}))
			}
			return err
		}
	}
	return nil
}

// holder is the process that took a run's claim last, as far as it can be known.
type holder struct {
	sqlite.Driver
	known  bool // it left a note
	here   bool // it ran on this host
	living bool // only with here
}

// gone says that the process is known to have ended.
func (h holder) gone() bool { return h.known && h.here && !h.living }

func (h holder) String() string {
	switch {
	case !h.known:
		return "a process that left no note"
	case !h.here:
		return fmt.Sprintf("process %d on %s", h.PID, h.Host)
	case h.living:
		return fmt.Sprintf("process %d on this host, which is alive", h.PID)
	}
	return fmt.Sprintf("process %d on this host, which is gone", h.PID)
}

// holder looks up who took a run's claim last.
func (s *store) holder(ctx context.Context, id string) (holder, error) {
	if s.lite == nil {
		return holder{}, nil
	}
	d, err := s.lite.DriverOf(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return holder{}, nil
	}
	if err != nil {
		return holder{}, err
	}
	self := thisProcess()
	h := holder{Driver: d, known: true, here: d.Host != "" && d.Host == self.Host}
	// A number that is this process's own now was another's.
	h.living = h.here && d.PID != self.PID && alive(d.PID)
	return h, nil
}

// takeOver ends the claim of a process that is known to be gone, so that the run is due at once.
func (s *store) takeOver(ctx context.Context, id string) error {
	batch, err := s.ClaimDue(ctx, claim.Policy{
		Limit: 1, MaxAttempts: maxAttempts, Prefer: claim.Expired, Filter: claim.Filter{Runs: []string{id}},
	})
	if err != nil {
		return err
	}
	for _, lease := range batch.Leases {
		err = errors.Join(err, s.ReleaseClaim(ctx, lease.Run, lease.Token, claim.ReleasePolicy{Refund: true}))
	}
	return err
}

// What the engines of this command use. They are those of an engine that is not configured otherwise.
const (
	claimTTL    = time.Minute
	maxAttempts = 5
	maxAbandons = 20
)
