package proptest_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// onto is a copy of a commit that builds on another sequence.
func onto(c backend.Commit, seq int64) backend.Commit {
	d := *c.Document
	d.Seq, c.Expected, c.Document = seq+1, seq, &d
	return c
}

func editCommit(edit func(b *broken, s *backend.Scope, c *backend.Commit)) func(b *broken) {
	return func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			if s.Validate() == nil && c.Document != nil && c.Token != "" && c.Document.Seq == c.Expected+1 {
				edit(b, &s, &c)
			}
			return b.Store.Commit(ctx, s, c)
		}
	}
}

// commitMutants break commits and mutations.
var commitMutants = []mutant{
	{"T1", "the fence forgets the token", editCommit(func(b *broken, _ *backend.Scope, c *backend.Commit) {
		c.Token = b.token(c.Document.ID, c.Token)
	})},
	{"T1", "the fence forgets the sequence", editCommit(func(b *broken, _ *backend.Scope, c *backend.Commit) {
		if i, there := b.info(c.Document.ID); there && i.CheckpointID != c.CheckpointID && i.Document.Seq != c.Expected {
			*c = onto(*c, i.Document.Seq)
		}
	})},
	{"T1", "the scope is not looked at", editCommit(func(_ *broken, s *backend.Scope, _ *backend.Commit) { *s = backend.System() })},
	{"T1", "another graph version is written over silently", editCommit(func(b *broken, _ *backend.Scope, c *backend.Commit) {
		if i, there := b.info(c.Document.ID); there {
			d := *c.Document
			d.Graph, c.Document = i.Document.Graph, &d
		}
	})},
	{"T1", "a contradicted event is skipped", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if !errors.Is(err, backend.ErrEventConflict) {
				return done, err
			}
			stored, _ := b.Store.ListEvents(ctx, backend.System(), c.Document.ID, backend.EventQuery{Limit: backend.MaxLimit})
			c.Events = slices.DeleteFunc(slices.Clone(c.Events), func(e run.Event) bool {
				return slices.ContainsFunc(stored.Events, func(o run.Event) bool { return o.Seq == e.Seq })
			})
			return b.Store.Commit(ctx, s, c)
		}
	}},
	{"T1", "an absent run is told before a bad shape", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if errors.Is(err, backend.ErrInvalidCommit) && c.Document != nil {
				if _, there := b.info(c.Document.ID); !there {
					return done, backend.ErrNotFound
				}
			}
			return done, err
		}
	}},
	{"T1", "the sequence may skip one", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			if c.Document != nil && c.Document.Seq == c.Expected+2 {
				c = onto(c, c.Expected)
			}
			return b.Store.Commit(ctx, s, c)
		}
	}},
	{"T1", "the fence does not say whether the token matched", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			var fence *checkpoint.FenceError
			if errors.As(err, &fence) {
				err = &checkpoint.FenceError{Stored: fence.Stored, Presented: fence.Presented}
			}
			return done, err
		}
	}},
	{"T2", "events are left behind when the claim is retained", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) {
		if c.Schedule.Kind == checkpoint.Retain {
			c.Events = nil
		}
	})},
	{"T2", "release-at is release-now", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) {
		if c.Schedule.Kind == checkpoint.ReleaseAt && !c.Schedule.At.IsZero() {
			c.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
		}
	})},
	{"T2", "a wake in the past becomes now", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) {
		if c.Schedule.Kind == checkpoint.ReleaseAt && !c.Schedule.At.IsZero() && c.Schedule.At.Before(c.Now) {
			c.Schedule.At = c.Now
		}
	})},
	{"T2", "retain gives the claim back", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) {
		if c.Schedule.Kind == checkpoint.Retain {
			c.Schedule.Kind = checkpoint.ReleaseNow
		}
	})},
	{"T2", "a commit does not reset the abandons", func(b *broken) {
		kept := notes[string, int]{}
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			before := 0
			if c.Document != nil {
				if i, there := b.info(c.Document.ID); there {
					before = i.Abandons
				}
			}
			done, err := b.Store.Commit(ctx, s, c)
			if err == nil && !done.Replayed {
				kept.set(c.Document.ID, before)
			}
			return done, err
		}
		b.lies(func(i *backend.Info) { i.Abandons += kept.get(i.Document.ID) })
	}},
	{"T2", "a commit does not reset the attempts", func(b *broken) {
		kept := notes[string, int]{}
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			before := 0
			if c.Document != nil {
				if i, there := b.info(c.Document.ID); there {
					before = i.Attempts
				}
			}
			done, err := b.Store.Commit(ctx, s, c)
			if err == nil && !done.Replayed {
				kept.set(c.Document.ID, before)
			}
			return done, err
		}
		b.lies(func(i *backend.Info) { i.Attempts += kept.get(i.Document.ID) })
	}},
	{"A4", "a retain moves claimed-at back", func(b *broken) {
		at := notes[string, time.Time]{}
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if err == nil && !done.Replayed {
				at.forget(c.Document.ID)
				if c.Schedule.Kind == checkpoint.Retain && !c.Now.IsZero() {
					at.set(c.Document.ID, claim.Instant(c.Now))
				}
			}
			return done, err
		}
		b.lies(func(i *backend.Info) {
			if now := at.get(i.Document.ID); !now.IsZero() && i.Attempts == 0 && !i.ClaimedAt.IsZero() {
				i.ClaimedAt = now
			}
		})
	}},
	{"A2", "wakes lose their microseconds", func(b *broken) {
		b.lies(func(i *backend.Info) { i.Wake = i.Wake.Truncate(time.Millisecond) })
	}},
	{"A2", "claimed-at loses its microseconds", func(b *broken) {
		b.lies(func(i *backend.Info) { i.ClaimedAt = i.ClaimedAt.Truncate(time.Millisecond) })
	}},
	{"T5", "a commit sent again is a stale fence", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if done.Replayed {
				return backend.Committed{}, &checkpoint.FenceError{Stored: c.Expected + 1, Presented: c.Expected}
			}
			return done, err
		}
	}},
	{"T5", "a commit that was overtaken is told as a replay", func(b *broken) {
		seen := notes[checkpoint.ID, bool]{}
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if errors.Is(err, checkpoint.ErrStaleFence) && seen.get(c.CheckpointID) {
				return backend.Committed{Replayed: true}, nil
			}
			if err == nil {
				seen.set(c.CheckpointID, true)
			}
			return done, err
		}
	}},
	{"T5", "the token decides what is a replay", func(b *broken) {
		last := notes[string, claim.Token]{}
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if errors.Is(err, checkpoint.ErrStaleFence) && last.get(c.Document.ID) == c.Token {
				return backend.Committed{Replayed: true}, nil
			}
			if err == nil {
				last.set(c.Document.ID, c.Token)
			}
			return done, err
		}
	}},
	{"T3", "a mutation may retain", editMutation(func(p *run.Proposal, _ *run.Document) {
		if p.Schedule.Kind == checkpoint.Retain {
			p.Schedule.Kind = checkpoint.ReleaseNow
		}
	})},
	{"T3", "a mutation keeps the claim", func(b *broken) {
		at := notes[string, time.Time]{}
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			i, there := b.info(id)
			m, err := b.Store.MutateRun(ctx, s, id, c, fn)
			if err == nil && m.Committed && !m.Replayed && there {
				at.set(id, i.ClaimedAt)
			}
			return m, err
		}
		b.lies(func(i *backend.Info) {
			if i.ClaimedAt.IsZero() {
				i.ClaimedAt = at.get(i.Document.ID)
			}
		})
	}},
	{"T3", "mutations are not serialized", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			seen, err := b.Store.FetchRun(ctx, s, id)
			if err != nil || fn == nil || claim.CheckID("checkpoint id", string(c)) != nil {
				return b.Store.MutateRun(ctx, s, id, c, fn)
			}
			decided, failed := fn(seen)
			return b.Store.MutateRun(ctx, s, id, c, func(current *run.Document) (backend.Mutation, error) {
				if failed == nil && decided.Proposal != nil && current.Seq != seen.Seq {
					// The last writer wins.
					p := *decided.Proposal
					d := *p.Document
					p.Document, p.Expected, d.Seq, p.Events = &d, current.Seq, current.Seq+1, nil
					return backend.Mutation{Proposal: &p, Value: decided.Value}, nil
				}
				return decided, failed
			})
		}
	}},
	{"T3", "the function is called for runs out of scope", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			m, err := b.Store.MutateRun(ctx, s, id, c, fn)
			if errors.Is(err, backend.ErrNotFound) {
				if i, there := b.info(id); there {
					_, _ = fn(i.Document)
				}
			}
			return m, err
		}
	}},
	{"T3", "an error of the function is swallowed", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			if fn == nil {
				return b.Store.MutateRun(ctx, s, id, c, fn)
			}
			return b.Store.MutateRun(ctx, s, id, c, func(current *run.Document) (backend.Mutation, error) {
				m, err := fn(current)
				if err != nil {
					return backend.Mutation{Value: m.Value}, nil
				}
				return m, nil
			})
		}
	}},
	{"T3", "the function's value is lost", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			m, err := b.Store.MutateRun(ctx, s, id, c, fn)
			m.Value = nil
			return m, err
		}
	}},
	{"T3", "a mutation of any type may change the graph version", editMutation(func(p *run.Proposal, current *run.Document) {
		if p.Type != checkpoint.GraphMigrated && p.Document != nil && p.Document.Graph.ID == current.Graph.ID {
			d := *p.Document
			d.Graph, p.Document = current.Graph, &d
		}
	})},
	{"T5", "a mutation sent again decides anew", func(b *broken) {
		n := atomic.Int64{}
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			m, err := b.Store.MutateRun(ctx, s, id, c, fn)
			if m.Replayed {
				return b.Store.MutateRun(ctx, s, id, c+checkpoint.ID(rune('a'+n.Add(1)%26)), fn)
			}
			return m, err
		}
	}},
	{"T5", "a mutation sent again is told as no change", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			m, err := b.Store.MutateRun(ctx, s, id, c, fn)
			if m.Replayed {
				m.Replayed, m.Committed = false, false
			}
			return m, err
		}
	}},
}

func editMutation(edit func(p *run.Proposal, current *run.Document)) func(b *broken) {
	return func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			if fn == nil {
				return b.Store.MutateRun(ctx, s, id, c, fn)
			}
			return b.Store.MutateRun(ctx, s, id, c, func(current *run.Document) (backend.Mutation, error) {
				m, err := fn(current)
				if err == nil && m.Proposal != nil {
					p := *m.Proposal
					edit(&p, current)
					m.Proposal = &p
				}
				return m, err
			})
		}
	}
}

func editInsert(edit func(b *broken, o *backend.Owner, in *backend.Initialization)) func(b *broken) {
	return func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			edit(b, &o, &in)
			return b.Store.InsertRun(ctx, o, in)
		}
	}
}

// insertMutants break inserts and start keys.
var insertMutants = []mutant{
	{"R1", "a start in the future is due now", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		if in.Schedule.Kind == checkpoint.ReleaseAt && in.Schedule.At.After(in.Now) && !in.Now.IsZero() && in.Claim == nil {
			in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
		}
	})},
	{"R1", "an insert loses its events", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) { in.Events = nil })},
	{"R1", "a taken id is told before a held key", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			if in.Document != nil && in.Key != "" {
				if i, there := b.info(in.Document.ID); there && i.CheckpointID != in.CheckpointID && i.Document.Seq == 1 {
					in.Key = ""
				}
			}
			return b.Store.InsertRun(ctx, o, in)
		}
	}},
	{"R1", "the conflict names the owner", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if errors.Is(err, backend.ErrConflict) {
				if i, there := b.info(in.Document.ID); there {
					err = errors.Join(err, errors.New("it belongs to "+i.Owner.String()))
				}
			}
			return done, err
		}
	}},
	{"R1", "the checkpoint type is not looked at", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		if in.Type.Valid() {
			in.Type = checkpoint.RunInitialized
		}
	})},
	{"R2", "a key has no window", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) { in.Window = min(in.Window, 0) })},
	{"R2", "a key's window begins again with each insert", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			in.Window *= 2
			return b.Store.InsertRun(ctx, o, in)
		}
	}},
	{"R2", "a key is free as soon as its window has passed", func(b *broken) {
		until := notes[string, time.Time]{}
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			if in.Key != "" && !in.Now.Before(until.get(in.Key)) && !until.get(in.Key).IsZero() {
				if done, err := b.Store.InsertRun(ctx, o, in); err != nil || !done.Existing {
					return done, err
				}
				in.Key = ""
			}
			done, err := b.Store.InsertRun(ctx, o, in)
			if err == nil && !done.Existing && !done.Replayed {
				until.set(in.Key, in.Now.Add(in.Window))
			}
			return done, err
		}
	}},
	{"R2", "a key is held for ever", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			if in.Window >= 0 {
				in.Window += 1000 * time.Hour
			}
			return b.Store.InsertRun(ctx, o, in)
		}
	}},
	{"R2", "a key belongs to all owners", func(b *broken) {
		first := notes[string, string]{}
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			if id := first.get(in.Key); in.Key != "" && id != "" && id != in.Document.ID {
				if i, there := b.info(id); there && i.Owner != o && i.Document.Status == run.Running {
					return backend.Inserted{Run: id, Existing: true}, nil
				}
			}
			done, err := b.Store.InsertRun(ctx, o, in)
			if err == nil && !done.Existing && !done.Replayed {
				first.set(in.Key, done.Run)
			}
			return done, err
		}
	}},
	{"R2", "keys ignore case", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		if in.Key == "K" {
			in.Key = "k"
		}
	})},
	{"R2", "an existing run is a conflict", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if done.Existing {
				return backend.Inserted{}, backend.ErrConflict
			}
			return done, err
		}
	}},
	{"R3", "a run that is started claimed has no attempt", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if done.Lease != nil {
				done.Lease.Attempt = 0
			}
			return done, err
		}
	}},
	{"T5", "an insert sent again is a conflict", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if done.Replayed {
				return backend.Inserted{}, backend.ErrConflict
			}
			return done, err
		}
	}},
	{"T5", "an insert sent again is told by the latest checkpoint id alone", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if i, there := b.info(in.Document.ID); done.Replayed && there && i.CheckpointID != in.CheckpointID {
				return backend.Inserted{}, backend.ErrConflict
			}
			return done, err
		}
	}},
	{"T5", "any insert of a taken id is a replay", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if errors.Is(err, backend.ErrConflict) {
				return backend.Inserted{Run: in.Document.ID, Replayed: true}, nil
			}
			return done, err
		}
	}},
}
