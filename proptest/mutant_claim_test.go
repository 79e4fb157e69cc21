package proptest_test

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// candidate is a run that is due.
type candidate struct {
	id      string
	owner   backend.Owner
	expired bool
	at      time.Time
}

// candidates lists the runs that are due, oldest first.
func (b *broken) candidates(p claim.Policy) []candidate {
	var cs []candidate
	for _, i := range b.infos() {
		if i.Document.Status != run.Running || len(p.Filter.Runs) > 0 && !slices.Contains(p.Filter.Runs, i.Document.ID) {
			continue
		}
		switch {
		case !i.Wake.IsZero() && !i.Wake.After(p.Now):
			cs = append(cs, candidate{i.Document.ID, i.Owner, false, i.Wake})
		case !i.ClaimedAt.IsZero() && i.ClaimedAt.Before(p.Now.Add(-p.TTL)):
			cs = append(cs, candidate{i.Document.ID, i.Owner, true, i.ClaimedAt})
		}
	}
	slices.SortFunc(cs, func(x, y candidate) int {
		return cmp.Or(x.at.Compare(y.at), strings.Compare(x.id, y.id))
	})
	return cs
}

// selects makes a claim by age take the first candidates in the order that choose gives
// them, and leave out those that it leaves out.
func (b *broken) selects(choose func(cs []candidate, p claim.Policy) []candidate) {
	b.claimDue = func(p claim.Policy) (claim.Batch, error) {
		if p.Now.IsZero() || p.Limit < 1 || p.Fairness != claim.OldestFirst || len(p.Filter.Graphs) > 0 || p.OwnerCap != 0 {
			return b.Store.ClaimDue(ctx, p)
		}
		cs := choose(b.candidates(p), p)
		p.Filter.Runs = []string{"no run"}
		for _, c := range cs[:min(len(cs), p.Limit)] {
			p.Filter.Runs = append(p.Filter.Runs, c.id)
		}
		return b.Store.ClaimDue(ctx, p)
	}
}

// heads moves the head of each class to the front.
func heads(cs []candidate) []candidate {
	for _, expired := range []bool{true, false} {
		if i := slices.IndexFunc(cs, func(c candidate) bool { return c.expired == expired }); i > 0 {
			head := cs[i]
			cs = slices.Insert(slices.Delete(cs, i, i+1), 0, head)
		}
	}
	return cs
}

// byClass puts the candidates of one class before the others.
func byClass(cs []candidate, expired bool) []candidate {
	slices.SortStableFunc(cs, func(x, y candidate) int {
		switch {
		case x.expired == y.expired:
			return 0
		case x.expired == expired:
			return -1
		default:
			return 1
		}
	})
	return cs
}

// as orders the candidates by the rule, so that a mutant may break one part of it.
func as(cs []candidate, p claim.Policy) []candidate {
	switch {
	case p.Limit >= 2:
		return heads(cs)
	case p.Prefer != claim.NoClass:
		return byClass(cs, p.Prefer == claim.Expired)
	default:
		return cs
	}
}

func editPolicy(edit func(p *claim.Policy)) func(b *broken) {
	return func(b *broken) {
		b.claimDue = func(p claim.Policy) (claim.Batch, error) {
			if p.Limit < 1 || p.MaxAttempts < 1 || p.TTL < 0 || p.OwnerCap < 0 {
				return b.Store.ClaimDue(ctx, p)
			}
			edit(&p)
			return b.Store.ClaimDue(ctx, p)
		}
	}
}

func editBatch(edit func(batch *claim.Batch)) func(b *broken) {
	return func(b *broken) {
		b.claimDue = func(p claim.Policy) (claim.Batch, error) {
			batch, err := b.Store.ClaimDue(ctx, p)
			edit(&batch)
			return batch, err
		}
	}
}

func editLease(edit func(l *claim.Lease)) func(b *broken) {
	return editBatch(func(batch *claim.Batch) {
		for i := range batch.Leases {
			edit(&batch.Leases[i])
		}
	})
}

// claimMutants break ClaimDue.
var claimMutants = []mutant{
	{"K1", "a claim expires at its TTL, not after it", editPolicy(func(p *claim.Policy) { p.TTL = max(p.TTL-time.Microsecond, 0) })},
	{"K1", "a claim expires a microsecond late", editPolicy(func(p *claim.Policy) { p.TTL += time.Microsecond })},
	{"K1", "a wake is due only after its instant", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			return as(slices.DeleteFunc(cs, func(c candidate) bool { return !c.expired && c.at.Equal(p.Now) }), p)
		})
	}},
	{"K1", "an expired run is eligible since its claim ran out", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			since := func(c candidate) time.Time {
				if c.expired {
					return c.at.Add(p.TTL)
				}
				return c.at
			}
			slices.SortStableFunc(cs, func(x, y candidate) int { return since(x).Compare(since(y)) })
			return as(cs, p)
		})
	}},
	{"K1", "the TTL that counts is a constant", editPolicy(func(p *claim.Policy) { p.TTL = time.Minute })},
	{"K2", "a batch may exceed its limit by one", editPolicy(func(p *claim.Policy) { p.Limit++ })},
	{"K2", "a batch has one outcome too few", editPolicy(func(p *claim.Policy) { p.Limit = max(p.Limit-1, 1) })},
	{"K2", "no reservation: age alone decides", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit >= 2 {
				return cs
			}
			return as(cs, p)
		})
	}},
	{"K2", "the reservation forgets expired runs", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit >= 2 {
				return byClass(cs, false)
			}
			return as(cs, p)
		})
	}},
	{"K2", "the preference is ignored at a limit of 1", editPolicy(func(p *claim.Policy) { p.Prefer = claim.NoClass })},
	{"K2", "the preference does not fall through", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit == 1 && p.Prefer != claim.NoClass {
				return slices.DeleteFunc(cs, func(c candidate) bool { return c.expired != (p.Prefer == claim.Expired) })
			}
			return as(cs, p)
		})
	}},
	{"K2", "the preference decides above a limit of 1", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit >= 2 && p.Prefer != claim.NoClass {
				return heads(byClass(cs, p.Prefer == claim.Expired))
			}
			return as(cs, p)
		})
	}},
	{"K2", "ties go to the greater id", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			slices.SortFunc(cs, func(x, y candidate) int { return cmp.Or(x.at.Compare(y.at), strings.Compare(y.id, x.id)) })
			return as(cs, p)
		})
	}},
	{"K2", "the youngest goes first", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			slices.Reverse(cs)
			return as(cs, p)
		})
	}},
	{"K3", "one launch more than the maximum", editPolicy(func(p *claim.Policy) { p.MaxAttempts++ })},
	{"K3", "one launch less than the maximum", editPolicy(func(p *claim.Policy) { p.MaxAttempts = max(p.MaxAttempts-1, 1) })},
	{"K3", "poison leaves a wake", func(b *broken) {
		b.lies(func(i *backend.Info) {
			if i.Poison.Reason != "" {
				i.Wake = i.Poison.At
			}
		})
	}},
	{"K3", "poison counts the attempt that did not happen", func(b *broken) {
		b.lies(func(i *backend.Info) {
			if i.Poison.Reason == claim.MaxAttemptsExceeded {
				i.Attempts++
			}
		})
	}},
	{"K3", "poison has no outcome", editBatch(func(batch *claim.Batch) { batch.Poisoned = nil })},
	{"K3", "poison gives the other reason", editBatch(func(batch *claim.Batch) {
		for i := range batch.Poisoned {
			batch.Poisoned[i].Poison.Reason = claim.MaxAbandonsExceeded
		}
	})},
	{"K3", "leases count attempts from zero", editLease(func(l *claim.Lease) { l.Attempt-- })},
	{"K3", "leases name the wrong owner", editLease(func(l *claim.Lease) { l.Owner = backend.Tenantless() })},
	{"K3", "leases after a commit carry the first sequence", editLease(func(l *claim.Lease) { l.Seq = 1 })},
	{"K5", "interleaving is the order of age", editPolicy(func(p *claim.Policy) { p.Fairness = claim.OldestFirst })},
	{"A3", "ClaimDue does not tell its now", editBatch(func(batch *claim.Batch) { batch.Now = time.Time{} })},
	{"A7", "a run gets its first token again", func(b *broken) {
		first := notes[string, claim.Token]{}
		b.claimDue = func(p claim.Policy) (claim.Batch, error) {
			batch, err := b.Store.ClaimDue(ctx, p)
			for i, l := range batch.Leases {
				if first.get(l.Run) == "" {
					first.set(l.Run, l.Token)
				}
				batch.Leases[i].Token = first.get(l.Run)
			}
			return batch, err
		}
	}},
	{"X4", "the filter by graphs is ignored", editPolicy(func(p *claim.Policy) { p.Filter.Graphs = nil })},
	{"X4", "the filter by runs is ignored", editPolicy(func(p *claim.Policy) { p.Filter.Runs = nil })},
	{"X10", "the cap is ignored", editPolicy(func(p *claim.Policy) { p.OwnerCap = 0 })},
	{"X10", "the cap allows one more", editPolicy(func(p *claim.Policy) {
		if p.OwnerCap > 0 {
			p.OwnerCap++
		}
	})},
}

// holderMutants break what the holder of a claim may do.
var holderMutants = []mutant{
	{"A4", "a refresh moves claimed-at back", func(b *broken) {
		last := notes[string, time.Time]{}
		b.refreshClaim = func(id string, t claim.Token, now time.Time) error {
			err := b.Store.RefreshClaim(ctx, id, t, now)
			if err == nil && !now.IsZero() {
				last.set(id, claim.Instant(now))
			}
			return err
		}
		b.lies(func(i *backend.Info) {
			if at := last.get(i.Document.ID); !at.IsZero() && i.ClaimedAt.After(at) && i.Attempts > 0 {
				i.ClaimedAt = at
			}
		})
	}},
	{"K7", "a refresh under a stale token succeeds", func(b *broken) {
		b.refreshClaim = func(id string, t claim.Token, now time.Time) error {
			if err := b.Store.RefreshClaim(ctx, id, t, now); err != backend.ErrClaimLost {
				return err
			}
			return nil
		}
	}},
	{"K7", "a refresh under a stale token refreshes the holder's", func(b *broken) {
		b.refreshClaim = func(id string, t claim.Token, now time.Time) error {
			if t == "" {
				return b.Store.RefreshClaim(ctx, id, t, now)
			}
			return b.Store.RefreshClaim(ctx, id, b.token(id, t), now)
		}
	}},
	{"K7", "a refresh after the TTL is lost", func(b *broken) {
		b.refreshClaim = func(id string, t claim.Token, now time.Time) error {
			if i, there := b.info(id); there && t == b.token(id, "") && !i.ClaimedAt.IsZero() && now.Sub(i.ClaimedAt) > time.Minute {
				return backend.ErrClaimLost
			}
			return b.Store.RefreshClaim(ctx, id, t, now)
		}
	}},
	{"K8", "a release ignores its delay", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			p.After = min(p.After, 0)
			return b.Store.ReleaseClaim(ctx, id, t, p)
		}
	}},
	{"K8", "a release never refunds", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			p.Refund = false
			return b.Store.ReleaseClaim(ctx, id, t, p)
		}
	}},
	{"K8", "a release always refunds", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			p.Refund = true
			return b.Store.ReleaseClaim(ctx, id, t, p)
		}
	}},
	{"K8", "a stale release is a lost claim", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			i, there := b.info(id)
			if err := b.Store.ReleaseClaim(ctx, id, t, p); err != nil {
				return err
			}
			if !there || i.ClaimedAt.IsZero() || t != b.token(id, "") {
				return backend.ErrClaimLost
			}
			return nil
		}
	}},
	{"K8", "a stale release releases the holder's claim", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			if t == "" {
				return b.Store.ReleaseClaim(ctx, id, t, p)
			}
			return b.Store.ReleaseClaim(ctx, id, b.token(id, t), p)
		}
	}},
	{"K9", "an abandon forgets the token", editAbandon(func(b *broken, id string, t *claim.Token, _ *claim.AbandonPolicy) {
		*t = b.token(id, *t)
	})},
	{"K9", "an abandon forgets the sequence", editAbandon(func(b *broken, id string, _ *claim.Token, p *claim.AbandonPolicy) {
		if i, there := b.info(id); there {
			p.ExpectedSeq = i.Document.Seq
		}
	})},
	{"K9", "one reschedule more than the maximum", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) { p.MaxAbandons++ })},
	{"K9", "one reschedule less than the maximum", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) {
		p.MaxAbandons = max(p.MaxAbandons-1, 1)
	})},
	{"K9", "never-poison poisons", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) {
		if p.Backoff == (claim.Backoff{}) {
			p.NeverPoison = false
		}
	})},
	{"K9", "the backoff is ignored", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) { p.Backoff = claim.Backoff{} })},
	{"K9", "the backoff doubles once too often", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) {
		p.Backoff.Base = min(2*p.Backoff.Base, p.Backoff.Cap)
	})},
	{"K9", "the backoff has no cap", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) {
		if p.Backoff != (claim.Backoff{}) {
			p.Backoff.Cap = 100 * 365 * 24 * time.Hour
		}
	})},
	{"K9", "retry-after is ignored", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) { p.RetryAfter = 0 })},
	{"K9", "retry-at is now", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) { p.RetryAt = p.Now })},
	{"A1", "a retry-at before now is accepted", func(b *broken) {
		b.abandonClaim = func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
			if !p.RetryAt.IsZero() && p.RetryAt.Before(p.Now) {
				p.RetryAt = p.Now
			}
			return b.Store.AbandonClaim(ctx, id, t, p)
		}
	}},
	{"K9", "an abandon costs an attempt", func(b *broken) {
		cost := notes[string, int]{}
		b.abandonClaim = func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
			d, err := b.Store.AbandonClaim(ctx, id, t, p)
			if err == nil && d == claim.Rescheduled {
				cost.set(id, cost.get(id)+1)
			}
			return d, err
		}
		b.lies(func(i *backend.Info) {
			if i.Abandons > 0 {
				i.Attempts += cost.get(i.Document.ID)
			}
		})
	}},
	{"K10", "recovery of a healthy run takes its claim", func(b *broken) {
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			err := b.Store.RetryPoisonedRun(ctx, s, id, now)
			if err == nil {
				_ = b.Store.ReleaseClaim(ctx, id, b.token(id, "none"), claim.ReleasePolicy{Now: now})
			}
			return err
		}
	}},
	{"K10", "recovery of a finished run succeeds", func(b *broken) {
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			if err := b.Store.RetryPoisonedRun(ctx, s, id, now); err != backend.ErrInactiveRun {
				return err
			}
			return nil
		}
	}},
	{"K10", "recovery keeps the attempts", func(b *broken) {
		kept := notes[string, int]{}
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			i, there := b.info(id)
			err := b.Store.RetryPoisonedRun(ctx, s, id, now)
			if err == nil && there && i.Poison.Reason != "" {
				kept.set(id, i.Attempts)
			}
			return err
		}
		b.lies(func(i *backend.Info) {
			if !i.Wake.IsZero() && i.Attempts == 0 {
				i.Attempts = kept.get(i.Document.ID)
			}
		})
	}},
	{"A6", "recovery looks at no scope", func(b *broken) {
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			if s.Validate() == nil {
				s = backend.System()
			}
			return b.Store.RetryPoisonedRun(ctx, s, id, now)
		}
	}},
}

func editAbandon(edit func(b *broken, id string, t *claim.Token, p *claim.AbandonPolicy)) func(b *broken) {
	return func(b *broken) {
		b.abandonClaim = func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
			checked := p
			checked.Now, checked.RetryAt = claim.Instant(p.Now), claim.Instant(p.RetryAt)
			if t != "" && checked.Validate() == nil && claim.CheckID("token", string(t)) == nil {
				edit(b, id, &t, &p)
			}
			return b.Store.AbandonClaim(ctx, id, t, p)
		}
	}
}
