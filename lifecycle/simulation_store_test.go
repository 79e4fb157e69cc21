package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// simStore is the store as one host sees it: every call is two points, before which it may fail and
// after which its answer may be lost.
type simStore struct {
	backend.Store
	fleet *fleet
	host  *host
}

func simCall[T any](s *simStore, what string, call func() (T, error)) (T, error) {
	var zero T
	s.host.live()
	if slices.Contains(simWrites, what) && s.host.over {
		s.fleet.breaks("host %d has stopped, and asks for a %s", s.host.id, what)
	}
	s.host.point(what)
	s.slow(what)
	if f := s.fleet; f.trouble && f.rng.IntN(40) == 0 {
		f.tell("host %d: %s fails", s.host.id, what)
		s.host.failed = s.host.failed || s.host.stopping
		return zero, &backend.InfrastructureError{Op: what, Nature: backend.Transient, Err: errors.New("simulated")}
	}
	out, err := call()
	s.host.point(what + ": done")
	s.slow(what + ": done")
	if f := s.fleet; err == nil && f.trouble && f.rng.IntN(40) == 0 {
		f.tell("host %d: the answer of %s is lost", s.host.id, what)
		s.host.failed = true
		return zero, &backend.InfrastructureError{Op: what, Nature: backend.Unknown, Err: errors.New("simulated")}
	}
	return out, err
}

// simWrites are the calls that nobody may make who has stopped.
var simWrites = []string{"claim", "commit", "commits", "release", "abandon"}

// slow makes the store slow, now and then.
func (s *simStore) slow(what string) {
	if f := s.fleet; f.trouble && f.rng.IntN(60) == 0 {
		d := time.Duration(f.rng.IntN(int(simTTL / 2)))
		f.tell("host %d: %s takes %v", s.host.id, what, d)
		s.host.failed = s.host.failed || s.host.stopping
		_ = s.host.sleep(context.Background(), d)
	}
}

// holds notes whose token a run's is.
func (s *simStore) holds(id string, token claim.Token) {
	r := s.fleet.runs[id]
	r.token, r.holder, r.inARow = token, s.host, 0
	s.host.leased[id] = token
}

func (s *simStore) Features() backend.Features {
	features := s.Store.Features()
	features.Batches, features.ClaimDocuments, features.Wakes = s, s, s
	return features
}

// Subscribe implements backend.Wakes.
func (s *simStore) Subscribe(context.Context) (<-chan struct{}, error) {
	ch := make(chan struct{}, 1)
	s.host.wakes = append(s.host.wakes, ch)
	return ch, nil
}

func (s *simStore) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return simCall(s, "claim", func() (backend.ClaimedBatch, error) {
		batch, err := s.fleet.store.ClaimDueDocuments(ctx, p)
		for _, l := range batch.Leases {
			s.fleet.tell("host %d: claims %s", s.host.id, l.Run)
			s.holds(l.Run, l.Token)
		}
		for _, p := range batch.Poisoned {
			s.fleet.runs[p.Run].token = ""
		}
		return batch, err
	})
}

func (s *simStore) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return simCall(s, "insert", func() (backend.Inserted, error) {
		inserted, err := s.Store.InsertRun(ctx, owner, in)
		if err == nil && !inserted.Replayed {
			s.fleet.runs[in.Document.ID].seq = 1
			if inserted.Lease != nil {
				s.holds(in.Document.ID, inserted.Lease.Token)
			}
		}
		return inserted, err
	})
}

func (s *simStore) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	return s.fleet.store.InsertRuns(ctx, owner, ins)
}

func (s *simStore) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	return simCall(s, "commit", func() (backend.Committed, error) {
		c = s.spoilt(c)
		done, err := s.Store.Commit(ctx, scope, c)
		s.committed(c, done, err)
		return done, err
	})
}

func (s *simStore) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	answers, err := simCall(s, "commits", func() ([]backend.CommitResult, error) {
		cs = slices.Clone(cs)
		for i := range cs {
			cs[i] = s.spoilt(cs[i])
		}
		answers := s.fleet.store.Commits(ctx, scope, cs)
		for i, a := range answers {
			s.committed(cs[i], a.Committed, a.Err)
		}
		return answers, nil
	})
	if err != nil {
		answers = make([]backend.CommitResult, len(cs))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// spoilt is the commit as a host with a planted fault sends it.
func (s *simStore) spoilt(c backend.Commit) backend.Commit {
	if s.host.fault == "a retry that is parked without a release" && c.Type == checkpoint.RetryScheduled {
		c.Schedule = checkpoint.Schedule{Kind: checkpoint.Retain}
	}
	s.host.last = &c
	return c
}

// committed judges an acknowledged commit.
func (s *simStore) committed(c backend.Commit, done backend.Committed, err error) {
	if err != nil || done.Replayed {
		return
	}
	f, r := s.fleet, s.fleet.runs[c.Document.ID]
	f.tell("host %d: commits %s to %d, %s", s.host.id, c.Document.ID, c.Document.Seq, c.Document.Status)
	switch {
	case r.terminal:
		f.breaks("a commit to the finished run %s", c.Document.ID)
	case c.Document.Seq != r.seq+1:
		f.breaks("%s went from %d to %d", c.Document.ID, r.seq, c.Document.Seq)
	case c.Token != r.token:
		f.breaks("%s was committed under a claim that is not the last", c.Document.ID)
	case c.Schedule.Kind == checkpoint.Retain && (c.Type == checkpoint.RetryScheduled || c.Type == checkpoint.Snoozed):
		f.breaks("%s is parked and stays claimed", c.Document.ID)
	}
	if r.inARow++; r.inARow > simBudget {
		f.breaks("host %d made %d commits of %s under one claim", s.host.id, r.inARow, c.Document.ID)
	}
	if c.Schedule.Kind != checkpoint.Retain {
		r.token = ""
	}
	r.seq, r.terminal = c.Document.Seq, c.Document.Status.Terminal()
}

func (s *simStore) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return simCall(s, "mutate", func() (backend.Mutated, error) {
		if s.fleet.fault == "a signal that is dropped while the run is busy" && s.fleet.runs[id].token != "" {
			d, err := s.Store.FetchRun(ctx, scope, id)
			return backend.Mutated{Document: d, Committed: err == nil}, err
		}
		m, err := s.Store.MutateRun(ctx, scope, id, commit, fn)
		if err == nil && m.Committed && !m.Replayed {
			r := s.fleet.runs[id]
			s.fleet.tell("host %d: signals %s, now at %d", s.host.id, id, m.Document.Seq)
			if m.Document.Seq != r.seq+1 || r.terminal {
				s.fleet.breaks("a signal took %s from %d to %d (finished: %v)", id, r.seq, m.Document.Seq, r.terminal)
			}
			r.seq, r.terminal, r.token = m.Document.Seq, m.Document.Status.Terminal(), ""
			r.signalled = s.fleet.now
			for _, ws := range s.fleet.working {
				for _, w := range ws {
					w.revoked = w.revoked || w.run == id
				}
			}
		}
		return m, err
	})
}

func (s *simStore) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	return simCall(s, "fetch", func() (*run.Document, error) { return s.Store.FetchRun(ctx, scope, id) })
}

func (s *simStore) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	return simCall(s, "inspect", func() (backend.Info, error) { return s.Store.InspectRun(ctx, scope, id) })
}

func (s *simStore) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	return simCall(s, "graph", func() (value.Value, error) { return s.Store.FetchGraph(ctx, owner, ref) })
}

func (s *simStore) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	_, err := simCall(s, "refresh", func() (simNone, error) { return simNone{}, s.Store.RefreshClaim(ctx, id, token, now) })
	return err
}

func (s *simStore) RefreshClaims(ctx context.Context, held []backend.Held, now time.Time) []error {
	answers, err := simCall(s, "refreshes", func() ([]error, error) {
		if s.fleet.fault == "refreshes that reach nobody" {
			return make([]error, len(held)), nil
		}
		answers := s.fleet.store.RefreshClaims(ctx, held, now)
		if s.host.fault == "a lost claim that ends nobody" {
			answers = make([]error, len(held))
		}
		return answers, nil
	})
	if err != nil {
		answers = make([]error, len(held))
		for i := range answers {
			answers[i] = err
		}
	}
	return answers
}

func (s *simStore) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	_, err := simCall(s, "release", func() (simNone, error) {
		switch s.host.fault {
		case "a refund that is forgotten at the shutdown":
			p.Refund = p.Refund && !s.host.stopping
		case "a claim that is kept at the shutdown":
			if s.host.stopping {
				return simNone{}, nil
			}
		case "a claim that is given up without a refund":
			p.Refund = p.Refund && p.After == 0
		}
		r := s.fleet.runs[id]
		if !p.Refund && r.token == token { // no node of the simulation is to blame for that
			s.fleet.breaks("host %d gives %s back, which pays for it with an attempt", s.host.id, id)
		}
		err := s.Store.ReleaseClaim(ctx, id, token, p)
		if err == nil && r.token == token {
			r.token = ""
		}
		return simNone{}, err
	})
	return err
}

func (s *simStore) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return simCall(s, "abandon", func() (claim.Disposition, error) {
		done, err := s.Store.AbandonClaim(ctx, id, token, p)
		s.fleet.breaks("host %d hands back %s, which it can run", s.host.id, id)
		return done, err
	})
}
