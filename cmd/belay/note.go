package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
)

// noting is a store that keeps, beside each claim it hands out, which process has it, so that
// another process can tell whether it is gone. The note holds the claim's token: it says nothing
// about a claim that somebody took later without leaving a note, as services do.
type noting struct {
	*sqlite.Store
	self process
}

// process tells a process from others.
type process struct {
	host string // with the namespace of its number, where there are several on one host; "" when unknown
	pid  int
}

// note is what is kept of a claim. The host's column has the token behind a space, which is in
// no host's name.
func (p process) note(token claim.Token) sqlite.Driver {
	return sqlite.Driver{Host: p.host + " " + string(token), PID: p.pid}
}

func readNote(d sqlite.Driver) (process, claim.Token) {
	host, token := d.Host, ""
	if i := strings.LastIndexByte(d.Host, ' '); i >= 0 {
		host, token = d.Host[:i], d.Host[i+1:]
	}
	return process{host, d.PID}, claim.Token(token)
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
		if err := n.NoteDriver(ctx, lease.Run, n.self.note(lease.Token)); err != nil {
			for _, back := range leases {
				err = errors.Join(err, n.ReleaseClaim(ctx, back.Run, back.Token, claim.ReleasePolicy{Refund: true}))
			}
			return err
		}
	}
	return nil
}

// holder is the process that holds a run's claim, as far as it can be known.
type holder struct {
	process
	token  claim.Token
	kept   bool // this store keeps notes
	known  bool // it left a note
	here   bool // it ran on this host
	living bool // only with here
}

// gone says that the process is known to have ended.
func (h holder) gone() bool { return h.known && h.here && !h.living }

func (h holder) String() string {
	switch {
	case !h.kept:
		return "another process"
	case !h.known:
		return "a process that left no note"
	case !h.here:
		return fmt.Sprintf("process %d on %s", h.pid, h.host)
	case h.living:
		return fmt.Sprintf("process %d on this host, which is alive", h.pid)
	}
	return fmt.Sprintf("process %d on this host, which is gone", h.pid)
}

// holder looks up who holds a run.
func (s *store) holder(ctx context.Context, id string) (holder, error) {
	if s.notes == nil {
		return holder{}, nil
	}
	d, err := s.notes.DriverOf(ctx, id)
	if errors.Is(err, backend.ErrNotFound) {
		return holder{kept: true}, nil
	}
	if err != nil {
		return holder{}, err
	}
	h := holder{kept: true, known: true}
	h.process, h.token = readNote(d)
	// A refresh as of long ago changes nothing, and tells whether the claim is still the one of the note.
	err = s.RefreshClaim(ctx, id, h.token, time.Unix(0, 0))
	if errors.Is(err, claim.ErrClaimLost) || errors.Is(err, claim.ErrInvalidArgument) {
		return holder{kept: true}, nil
	}
	if err != nil {
		return holder{}, err
	}
	self := thisProcess()
	h.here = h.host != "" && h.host == self.host
	// A number that is this process's own now was another's.
	h.living = h.here && h.pid != self.pid && alive(h.pid)
	return h, nil
}

// takeOver ends the claim of a process that is known to be gone, and no other's, so that the run is
// due at once. The launch that came to nothing stays counted. It names the claim by its token: to claim
// the run with a TTL of zero would take it from whoever has it by now, who may be at work.
func (s *store) takeOver(ctx context.Context, id string, h holder) error {
	return s.ReleaseClaim(ctx, id, h.token, claim.ReleasePolicy{})
}

// What the engines of this command use. They are those of an engine that is not configured otherwise.
const (
	claimTTL        = time.Minute
	maxAttempts     = 5
	maxAbandons     = 20
	shutdownTimeout = 10 * time.Second
)
