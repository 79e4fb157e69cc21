package proptest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
)

// line is a store at the far end of a line that breaks when trouble says so.
type line struct {
	backend.Store
	features backend.Features

	mu      sync.Mutex
	armed   bool
	kind    breakage
	count   int
	pending func() // what was sent, and has not arrived

	// How a call that meets trouble comes out. What is not replaced is as it must be.
	commit  func(l *line, b breakage, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error)
	insert  func(l *line, b breakage, in backend.Initialization, send func(backend.Initialization) (backend.Inserted, error)) (backend.Inserted, error)
	mutate  func(l *line, b breakage, id checkpoint.ID, send func(checkpoint.ID) (backend.Mutated, error)) (backend.Mutated, error)
	claims  func(l *line, b breakage, p claim.Policy, send func(claim.Policy) (claim.Batch, error)) (claim.Batch, error)
	abandon func(l *line, b breakage, send func() (claim.Disposition, error)) (claim.Disposition, error)
}

// breakage is what becomes of one call.
type breakage int

const (
	none     breakage = iota
	refused           // it does not reach the store, and everybody knows
	unsent            // it does not reach the store, and nobody knows
	unheard           // it reaches the store, and its answer is lost
	resent            // the same, and it is sent again at once
	ofAKinds          // how many there are
)

func newLine() *line {
	s := memory.New(memory.Options{})
	l := &line{Store: s, features: s.Features()}
	l.features.Batches, l.features.ClaimDocuments = nil, nil
	l.commit = func(_ *line, b breakage, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		return over(b, func() (backend.Committed, error) { return send(c) })
	}
	l.insert = func(_ *line, b breakage, in backend.Initialization, send func(backend.Initialization) (backend.Inserted, error)) (backend.Inserted, error) {
		return over(b, func() (backend.Inserted, error) { return send(in) })
	}
	l.mutate = func(_ *line, b breakage, id checkpoint.ID, send func(checkpoint.ID) (backend.Mutated, error)) (backend.Mutated, error) {
		return over(b, func() (backend.Mutated, error) { return send(id) })
	}
	l.claims = func(_ *line, b breakage, p claim.Policy, send func(claim.Policy) (claim.Batch, error)) (claim.Batch, error) {
		if b == resent {
			b = unheard // a claim is not sent again: another one takes other runs
		}
		return over(b, func() (claim.Batch, error) { return send(p) })
	}
	l.abandon = func(_ *line, b breakage, send func() (claim.Disposition, error)) (claim.Disposition, error) {
		return over(b, send)
	}
	return l
}

// over is a call over a line that breaks.
func over[A any](b breakage, send func() (A, error)) (a A, err error) {
	switch b {
	case refused:
		return a, &backend.InfrastructureError{Op: "send", Nature: backend.Transient, Err: errLine}
	case unsent:
		return a, nobodyKnows()
	case unheard:
		_, _ = send()
		return a, nobodyKnows()
	case resent:
		_, _ = send()
	}
	return send()
}

var errLine = errors.New("the line broke")

func nobodyKnows() error {
	return &backend.InfrastructureError{Op: "send", Nature: backend.Unknown, Err: errLine}
}

// trouble makes the next call that changes something break.
func (l *line) trouble() *proptest.Trouble {
	return &proptest.Trouble{
		Make: func(draw func(int) int) {
			kind := 1 + breakage(draw(int(ofAKinds-1)))
			l.mu.Lock()
			l.armed, l.kind = true, kind
			l.mu.Unlock()
		},
		Count:  func() int { l.mu.Lock(); defer l.mu.Unlock(); return l.count },
		Settle: func() { l.mu.Lock(); l.armed = false; l.mu.Unlock() },
	}
}

// next is what becomes of the next call. What was under way arrives before it.
func (l *line) next() breakage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pending; p != nil {
		l.pending = nil
		p()
	}
	if !l.armed {
		return none
	}
	l.armed = false
	l.count++
	return l.kind
}

func (l *line) Features() backend.Features { return l.features }

func (l *line) Commit(ctx context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	return l.commit(l, l.next(), c, func(c backend.Commit) (backend.Committed, error) { return l.Store.Commit(ctx, s, c) })
}

func (l *line) InsertRun(ctx context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return l.insert(l, l.next(), in, func(in backend.Initialization) (backend.Inserted, error) { return l.Store.InsertRun(ctx, o, in) })
}

func (l *line) MutateRun(ctx context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return l.mutate(l, l.next(), c, func(c checkpoint.ID) (backend.Mutated, error) { return l.Store.MutateRun(ctx, s, id, c, fn) })
}

func (l *line) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return l.claims(l, l.next(), p, func(p claim.Policy) (claim.Batch, error) { return l.Store.ClaimDue(ctx, p) })
}

func (l *line) RefreshClaim(ctx context.Context, id string, t claim.Token, now time.Time) error {
	_, err := over(l.next(), func() (struct{}, error) { return struct{}{}, l.Store.RefreshClaim(ctx, id, t, now) })
	return err
}

func (l *line) ReleaseClaim(ctx context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	_, err := over(l.next(), func() (struct{}, error) { return struct{}{}, l.Store.ReleaseClaim(ctx, id, t, p) })
	return err
}

func (l *line) AbandonClaim(ctx context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return l.abandon(l, l.next(), func() (claim.Disposition, error) { return l.Store.AbandonClaim(ctx, id, t, p) })
}

func (l *line) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	_, err := over(l.next(), func() (struct{}, error) { return struct{}{}, l.Store.RetryPoisonedRun(ctx, s, id, now) })
	return err
}

// lineMutant is a mutant of what becomes of troubled calls.
func lineMutant(clause, name string, breaks func(l *line)) mutant {
	return mutant{clause, name, func(b *broken) {
		b.line = newLine()
		breaks(b.line)
	}}
}

// commits makes a mutant whose troubled commits come out as they do in f, and the others as they must.
func commits(f func(l *line, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error), at ...breakage) func(l *line) {
	return func(l *line) {
		right := l.commit
		l.commit = func(l *line, b breakage, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
			for _, kind := range at {
				if kind == b {
					return f(l, c, send)
				}
			}
			return right(l, b, c, send)
		}
	}
}

// troubleMutants abuse it that what becomes of a troubled call is open.
var troubleMutants = []mutant{
	lineMutant("T5", "a commit that nobody knows of is applied later", commits(func(l *line, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		l.pending = func() { _, _ = send(c) }
		return backend.Committed{}, nobodyKnows()
	}, unsent)),
	lineMutant("T5", "a commit that was never stored is told as a replay", func(l *line) {
		unknown := notes[checkpoint.ID, bool]{}
		right := l.commit
		l.commit = func(l *line, b breakage, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
			if b == none && unknown.get(c.CheckpointID) {
				return backend.Committed{Replayed: true}, nil
			}
			unknown.set(c.CheckpointID, b == unsent)
			return right(l, b, c, send)
		}
	}),
	lineMutant("T5", "a commit that is sent again is applied twice", func(l *line) {
		unknown := notes[checkpoint.ID, bool]{}
		right := l.commit
		l.commit = func(l *line, b breakage, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
			if b == none && unknown.get(c.CheckpointID) {
				unknown.forget(c.CheckpointID)
				_, _ = l.Store.MutateRun(ctx, backend.System(), c.Document.ID, c.CheckpointID+"x", func(d *run.Document) (backend.Mutation, error) {
					twice := onto(c, d.Seq)
					if twice.Schedule.Kind == checkpoint.Retain {
						twice.Schedule.Kind = checkpoint.ReleaseNow
					}
					twice.Events = nil
					return backend.Mutation{Proposal: &twice.Proposal}, nil
				})
			}
			unknown.set(c.CheckpointID, b == unheard)
			return right(l, b, c, send)
		}
	}),
	lineMutant("T5", "a commit is acknowledged, and lost", commits(func(*line, backend.Commit, func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		return backend.Committed{}, nil
	}, unsent)),
	lineMutant("T5", "a commit whose answer is lost loses its events", commits(func(_ *line, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		c.Events = nil
		_, _ = send(c)
		return backend.Committed{}, nobodyKnows()
	}, unheard)),
	lineMutant("T5", "a commit that took effect is told to have none", commits(func(_ *line, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		_, _ = send(c)
		return backend.Committed{}, &backend.InfrastructureError{Op: "send", Nature: backend.Transient, Err: errLine}
	}, unheard)),
	lineMutant("T5", "a commit whose answer is lost is a lost fence", commits(func(_ *line, c backend.Commit, send func(backend.Commit) (backend.Committed, error)) (backend.Committed, error) {
		_, _ = send(c)
		return backend.Committed{}, &checkpoint.FenceError{Stored: c.Expected + 1, Presented: c.Expected}
	}, unheard)),
	lineMutant("T5", "an insert whose answer was lost is a conflict when it is sent again", func(l *line) {
		unknown := notes[checkpoint.ID, bool]{}
		right := l.insert
		l.insert = func(l *line, b breakage, in backend.Initialization, send func(backend.Initialization) (backend.Inserted, error)) (backend.Inserted, error) {
			if b == none && unknown.get(in.CheckpointID) {
				return backend.Inserted{}, backend.ErrConflict
			}
			unknown.set(in.CheckpointID, b == unheard)
			return right(l, b, in, send)
		}
	}),
	lineMutant("T5", "an insert that was never stored is told as a replay", func(l *line) {
		unknown := notes[checkpoint.ID, bool]{}
		right := l.insert
		l.insert = func(l *line, b breakage, in backend.Initialization, send func(backend.Initialization) (backend.Inserted, error)) (backend.Inserted, error) {
			if b == none && unknown.get(in.CheckpointID) {
				return backend.Inserted{Run: in.Document.ID, Replayed: true}, nil
			}
			unknown.set(in.CheckpointID, b == unsent)
			return right(l, b, in, send)
		}
	}),
	lineMutant("T5", "a mutation that the store sends again has another id", func(l *line) {
		right := l.mutate
		l.mutate = func(l *line, b breakage, id checkpoint.ID, send func(checkpoint.ID) (backend.Mutated, error)) (backend.Mutated, error) {
			if b == resent {
				_, _ = send(id)
				return send(id + "x")
			}
			return right(l, b, id, send)
		}
	}),
	lineMutant("T5", "a mutation whose answer is lost is told as no change", func(l *line) {
		right := l.mutate
		l.mutate = func(l *line, b breakage, id checkpoint.ID, send func(checkpoint.ID) (backend.Mutated, error)) (backend.Mutated, error) {
			m, err := right(l, b, id, send)
			if b == unheard || b == unsent {
				m, err = backend.Mutated{}, nil
			}
			return m, err
		}
	}),
	lineMutant("T5", "a claim is sent again by the store", func(l *line) {
		l.claims = func(_ *line, b breakage, p claim.Policy, send func(claim.Policy) (claim.Batch, error)) (claim.Batch, error) {
			return over(b, func() (claim.Batch, error) { return send(p) })
		}
	}),
	lineMutant("T5", "a claim without an answer takes more than its limit", func(l *line) {
		right := l.claims
		l.claims = func(l *line, b breakage, p claim.Policy, send func(claim.Policy) (claim.Batch, error)) (claim.Batch, error) {
			if b == unheard {
				p.Limit++
			}
			return right(l, b, p, send)
		}
	}),
}

// Each call of unknown outcome doubles the orders among which one is looked for: with seventeen in the history of one run
// it was not decided in a minute.
func TestAHistoryMeetsTroubleNoOftenerThanCanBeJudged(t *testing.T) {
	var histories []*atomic.Int64
	proptest.Linearizable(t, func(t proptest.T) proptest.Opened {
		l := newLine()
		t.Cleanup(func() { _ = l.Close() })
		made := new(atomic.Int64)
		histories = append(histories, made)
		trouble := l.trouble()
		makes := trouble.Make
		trouble.Make = func(draw func(int) int) { made.Add(1); makes(draw) }
		return proptest.Opened{Store: l, Hooks: proptest.Hooks{Trouble: trouble}}
	}, proptest.Options{Histories: 10})
	most := int64(0)
	for _, made := range histories {
		most = max(most, made.Load())
	}
	if most == 0 || most > 8 {
		t.Errorf("a history met %d troubles", most)
	}
}

// TestALineThatBreaksKeepsToTheContract: the store that the mutants of trouble are made of is right, and
// so the kit allows what T5 allows.
func TestALineThatBreaksKeepsToTheContract(t *testing.T) {
	open := func(t proptest.T) proptest.Opened {
		l := newLine()
		t.Cleanup(func() { _ = l.Close() })
		return proptest.Opened{Store: l, Hooks: proptest.Hooks{Trouble: l.trouble()}}
	}
	proptest.Conformance(t, open, proptest.Options{Only: []string{"T5"}})
	proptest.Check(t, open, proptest.Options{})
	proptest.Linearizable(t, open, proptest.Options{Histories: 5})
}
