package memory_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// scene is a store in which operations take turns at their yield points.
type scene struct {
	*testing.T
	store   *memory.Store
	ref     graph.Ref
	yield   func(struct{}) bool // of the operation that has its turn; nil beside a schedule
	history []string            // the points that were passed, for a failure
}

// tryAllSchedules lets the operations that setup answers run beside each other in every
// order that their yield points allow, each time in a fresh scene, and calls check after.
func tryAllSchedules(t *testing.T, setup func(s *scene) (ops []func(), check func())) {
	t.Helper()
	var choices, options []int
	for tried := 1; ; tried++ {
		s := &scene{T: t}
		s.store = memory.New(memory.Options{
			Now: func() time.Time { return epoch },
			Yield: func(point string) {
				if yield := s.yield; yield != nil {
					s.history = append(s.history, point)
					yield(struct{}{})
				}
			},
		})
		s.ref = publish(t, s.store, backend.Tenantless(), "g")
		ops, check := setup(s)
		options = s.play(ops, choices)
		check()
		if err := s.store.Check(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("with the schedule %v: %q", choices, s.history)
		}
		// The next schedule: the last choice that can be another one is.
		choices = append(choices, make([]int, len(options)-len(choices))...)
		for len(choices) > 0 && choices[len(choices)-1] == options[len(choices)-1]-1 {
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			t.Logf("%d schedules", tried)
			if tried < 2 {
				t.Error("the operations had no choice")
			}
			return
		}
		choices[len(choices)-1]++
	}
}

// play runs the operations by the choices made, and then by the first one each time. It
// answers how many options there were each time.
func (s *scene) play(ops []func(), choices []int) (options []int) {
	type task struct {
		yield func(struct{}) bool
		next  func() (struct{}, bool)
	}
	var live []*task
	for _, op := range ops {
		t := &task{}
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			t.yield = yield
			s.yield = yield
			op()
		})
		defer stop()
		t.next = next
		live = append(live, t)
	}
	for len(live) > 0 {
		choice := 0
		if len(options) < len(choices) {
			choice = choices[len(options)]
		}
		options = append(options, len(live))
		t := live[choice]
		s.yield = t.yield
		if _, more := t.next(); !more {
			live = append(live[:choice:choice], live[choice+1:]...)
		}
		s.yield = nil
	}
	return options
}

// put stores a run that is due.
func (s *scene) put(id string) *run.Document {
	in := initial(id, s.ref, epoch)
	_, err := s.store.InsertRun(context.Background(), backend.Tenantless(), in)
	must(s, err)
	return in.Document
}

// take claims the one run that is due.
func (s *scene) take() claim.Lease {
	batch, err := s.store.ClaimDue(context.Background(), policy(epoch, 10))
	must(s, err)
	if len(batch.Leases) != 1 {
		s.Fatalf("%d leases", len(batch.Leases))
	}
	return batch.Leases[0]
}

func (s *scene) inspect(id string) backend.Info {
	info, err := s.store.InspectRun(context.Background(), backend.System(), id)
	must(s, err)
	return info
}

func (s *scene) commit(c backend.Commit) (backend.Committed, error) {
	return s.store.Commit(context.Background(), backend.System(), c)
}

// step is a commit that leads on, under the schedule.
func step(d *run.Document, token claim.Token, now time.Time, schedule checkpoint.Schedule) backend.Commit {
	next := *d
	next.Seq, next.Step, next.EventSeq, next.UpdatedAt = d.Seq+1, d.Step+1, d.EventSeq+1, now
	return backend.Commit{
		Proposal: run.Proposal{
			Document: &next,
			Events:   []run.Event{{Run: d.ID, Seq: next.EventSeq, Type: run.EventCheckpointCommitted, At: now, Step: d.Step, Checkpoint: checkpoint.StepCommitted, Commit: next.Seq}},
			Type:     checkpoint.StepCommitted, Schedule: schedule, Expected: d.Seq, Now: now,
		},
		CheckpointID: checkpoint.ID(fmt.Sprintf("%s/%d/%s", d.ID, next.Seq, string(token))),
		Token:        token,
	}
}

// cancel is a mutation's function that cancels a run that is not finished.
func cancel(current *run.Document) (backend.Mutation, error) {
	if current.Status.Terminal() {
		return backend.Mutation{}, run.ErrInactiveRun
	}
	p, _, err := run.Cancel(current, "enough", at(time.Second))
	return backend.Mutation{Proposal: &p}, err
}

// answer is a mutation's function that answers every open question.
func answer(current *run.Document) (backend.Mutation, error) {
	c := step(current, "", epoch, checkpoint.Schedule{Kind: checkpoint.ReleaseNow})
	d := c.Document
	d.Status = run.Running
	d.Interrupts = append([]run.Interrupt(nil), d.Interrupts...)
	for i := range d.Interrupts {
		d.Interrupts[i].Status, d.Interrupts[i].ResolvedAt, d.Interrupts[i].Answer = run.InterruptResolved, epoch, value.Value(`true`)
	}
	return backend.Mutation{Proposal: &c.Proposal}, nil
}

func TestH10ADelayedRefreshBesideARetainDoesNotMoveClaimedAtBack(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		d := s.put("a")
		l := s.take()
		var refreshed, committed error
		ops := []func(){
			func() { refreshed = s.store.RefreshClaim(context.Background(), "a", l.Token, at(time.Second)) },
			func() {
				_, committed = s.commit(step(d, l.Token, at(3*time.Second), checkpoint.Schedule{Kind: checkpoint.Retain}))
			},
		}
		return ops, func() {
			must(s, refreshed)
			must(s, committed)
			if got := s.inspect("a").ClaimedAt; !got.Equal(at(3 * time.Second)) {
				s.Errorf("claimed-at is %v", got)
			}
		}
	})
}

func TestH16AnAnswerBetweenTheLookAndTheParkIsNotLost(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		d := s.put("a")
		l := s.take()
		// The question is asked, and the run goes on to look whether it can park.
		c := step(d, l.Token, epoch, checkpoint.Schedule{Kind: checkpoint.Retain})
		c.Document.Interrupts = []run.Interrupt{{ID: "q", Node: "work", Question: value.Null(), Status: run.InterruptOpen, RequestedAt: epoch, Deadline: at(time.Hour), Default: value.Null()}}
		c.Document.Timers = []run.Timer{{Kind: run.TimerInterrupt, Key: "q", At: at(time.Hour)}}
		_, err := s.commit(c)
		must(s, err)
		var parked error
		ops := []func(){
			func() {
				looked, err := s.store.FetchRun(context.Background(), backend.System(), "a")
				must(s, err)
				if len(looked.OpenInterrupts()) == 0 {
					return // nothing to park for
				}
				_, parked = s.commit(step(looked, l.Token, epoch, checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: at(time.Hour)}))
			},
			func() {
				m, err := s.store.MutateRun(context.Background(), backend.System(), "a", "answer", func(current *run.Document) (backend.Mutation, error) {
					m, err := answer(current)
					m.Proposal.Document.Timers = nil
					return m, err
				})
				must(s, err)
				if !m.Committed {
					s.Error("the answer was not committed")
				}
			},
		}
		return ops, func() {
			if parked != nil && !errors.Is(parked, checkpoint.ErrStaleFence) {
				s.Errorf("parking answered %v", parked)
			}
			info := s.inspect("a")
			if len(info.Document.OpenInterrupts()) != 0 || !info.Wake.Equal(epoch) {
				s.Errorf("the answer is lost, or nobody will see it: wake %v, %+v", info.Wake, info.Document.Interrupts)
			}
		}
	})
}

func TestH17OfCancelAndCompletionOneWins(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		d := s.put("a")
		l := s.take()
		var cancelled, completed error
		ops := []func(){
			func() {
				_, cancelled = s.store.MutateRun(context.Background(), backend.System(), "a", "cancel", cancel)
			},
			func() { _, completed = s.commit(completion(d, l.Token, at(time.Second))) },
		}
		return ops, func() {
			info := s.inspect("a")
			switch {
			case completed == nil && info.Document.Status == run.Done && errors.Is(cancelled, run.ErrInactiveRun):
			case cancelled == nil && info.Document.Status == run.Cancelled && errors.Is(completed, checkpoint.ErrStaleFence):
			default:
				s.Errorf("the run is %s; cancel answered %v, the completion %v", info.Document.Status, cancelled, completed)
			}
			if info.Document.Seq != 2 {
				s.Errorf("the sequence is %d", info.Document.Seq)
			}
			if e, err := s.store.LatestEvent(context.Background(), backend.System(), "a"); err != nil || e.Seq != info.Document.EventSeq {
				s.Errorf("the last event is %+v, %v; the document ends at %d", e, err, info.Document.EventSeq)
			}
		}
	})
}

func TestH19NothingRemainsAfterACancelBesideAnything(t *testing.T) {
	beside := map[string]func(s *scene, l claim.Lease){
		"refresh": func(s *scene, l claim.Lease) {
			_ = s.store.RefreshClaim(context.Background(), "a", l.Token, at(time.Second))
		},
		"release": func(s *scene, l claim.Lease) {
			must(s, s.store.ReleaseClaim(context.Background(), "a", l.Token, claim.ReleasePolicy{Now: epoch}))
		},
		"abandon": func(s *scene, l claim.Lease) {
			_, err := s.store.AbandonClaim(context.Background(), "a", l.Token, claim.AbandonPolicy{Now: epoch, ExpectedSeq: 1, MaxAbandons: 1})
			must(s, err)
		},
		"steal": func(s *scene, _ claim.Lease) {
			_, err := s.store.ClaimDue(context.Background(), policy(at(time.Hour), 1))
			must(s, err)
		},
		"recover": func(s *scene, _ claim.Lease) {
			err := s.store.RetryPoisonedRun(context.Background(), backend.System(), "a", epoch)
			if err != nil && !errors.Is(err, backend.ErrInactiveRun) {
				s.Error(err)
			}
		},
	}
	for name, do := range beside {
		t.Run(name, func(t *testing.T) {
			tryAllSchedules(t, func(s *scene) ([]func(), func()) {
				s.put("a")
				l := s.take()
				ops := []func(){
					func() {
						_, err := s.store.MutateRun(context.Background(), backend.System(), "a", "cancel", cancel)
						must(s, err)
					},
					func() { do(s, l) },
				}
				return ops, func() {
					info := s.inspect("a")
					if info.Document.Status != run.Cancelled || !info.Wake.IsZero() || !info.ClaimedAt.IsZero() || info.Attempts != 0 ||
						len(info.Document.Timers) != 0 || len(info.Document.OpenInterrupts()) != 0 {
						s.Errorf("something remains: %+v", info)
					}
				}
			})
		})
	}
}

func TestT3TwoMutationsAtOnceAreBothApplied(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		s.put("a")
		mutate := func(id checkpoint.ID) func() {
			return func() {
				m, err := s.store.MutateRun(context.Background(), backend.System(), "a", id, answer)
				must(s, err)
				if !m.Committed || m.Replayed {
					s.Errorf("%s: %+v", id, m)
				}
			}
		}
		return []func(){mutate("one"), mutate("two")}, func() {
			if seq := s.inspect("a").Document.Seq; seq != 3 {
				s.Errorf("the sequence is %d", seq)
			}
		}
	})
}

func TestT5OneMutationSentTwiceAtOnceIsAppliedOnce(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		s.put("a")
		var replayed int
		mutate := func() {
			m, err := s.store.MutateRun(context.Background(), backend.System(), "a", "same", answer)
			must(s, err)
			if m.Replayed {
				replayed++
			}
			if m.Document.Seq != 2 {
				s.Errorf("answered the document at sequence %d", m.Document.Seq)
			}
		}
		return []func(){mutate, mutate}, func() {
			if seq := s.inspect("a").Document.Seq; seq != 2 || replayed != 1 {
				s.Errorf("the sequence is %d, %d were replayed", seq, replayed)
			}
		}
	})
}

func TestT5OneCommitSentTwiceAtOnceIsAppliedOnce(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		d := s.put("a")
		c := completion(d, s.take().Token, epoch)
		var replayed int
		commit := func() {
			done, err := s.commit(c)
			must(s, err)
			if done.Replayed {
				replayed++
			}
		}
		return []func(){commit, commit}, func() {
			if replayed != 1 {
				s.Errorf("%d were replayed", replayed)
			}
		}
	})
}

func TestR2OfTwoInsertsUnderOneKeyOneIsStored(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		var stored []string
		insert := func(id string) func() {
			return func() {
				in := initial(id, s.ref, epoch)
				in.Key = "k"
				done, err := s.store.InsertRun(context.Background(), backend.Tenantless(), in)
				must(s, err)
				if !done.Existing {
					stored = append(stored, id)
				}
			}
		}
		return []func(){insert("a"), insert("b")}, func() {
			page, err := s.store.ListRuns(context.Background(), backend.System(), backend.Query{Limit: 10})
			must(s, err)
			if len(stored) != 1 || len(page.Runs) != 1 || page.Runs[0].Run != stored[0] {
				s.Errorf("stored were %v, listed are %+v", stored, page.Runs)
			}
		}
	})
}

func TestT5OneInsertSentTwiceAtOnceIsStoredOnce(t *testing.T) {
	for _, key := range []string{"", "k"} {
		t.Run("key "+key, func(t *testing.T) {
			tryAllSchedules(t, func(s *scene) ([]func(), func()) {
				in := initial("a", s.ref, epoch)
				in.Key = key
				var replayed int
				insert := func() {
					done, err := s.store.InsertRun(context.Background(), backend.Tenantless(), in)
					must(s, err)
					if done.Replayed {
						replayed++
					}
				}
				return []func(){insert, insert}, func() {
					if replayed != 1 {
						s.Errorf("%d were replayed", replayed)
					}
				}
			})
		})
	}
}

func TestX7RetentionBesideAnInsertOfTheSameIDLeavesOneOrNone(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		first := initial("a", s.ref, epoch)
		first.Key = "k"
		_, err := s.store.InsertRun(context.Background(), backend.Tenantless(), first)
		must(s, err)
		_, err = s.commit(completion(first.Document, s.take().Token, epoch))
		must(s, err)
		var inserted error
		ops := []func(){
			func() {
				p, err := s.store.Prune(context.Background(), backend.PrunePolicy{Before: at(time.Hour), Limit: 10, Graphs: true})
				must(s, err)
				if p.Runs != 1 {
					s.Errorf("pruned %+v", p)
				}
			},
			func() {
				again := initial("a", s.ref, epoch)
				again.Key, again.CheckpointID = "k", "another"
				_, inserted = s.store.InsertRun(context.Background(), backend.Tenantless(), again)
			},
		}
		return ops, func() {
			_, err := s.store.FetchRun(context.Background(), backend.System(), "a")
			switch {
			case inserted == nil && err == nil:
			case errors.Is(inserted, backend.ErrConflict) && errors.Is(err, backend.ErrNotFound):
			default:
				s.Errorf("the insert answered %v, reading the run %v", inserted, err)
			}
		}
	})
}

func TestK3TwoClaimersAtOnceShareTheRuns(t *testing.T) {
	tryAllSchedules(t, func(s *scene) ([]func(), func()) {
		for _, id := range []string{"a", "b", "c"} {
			s.put(id)
		}
		leased := map[string]int{}
		take := func() {
			batch, err := s.store.ClaimDue(context.Background(), policy(epoch, 2))
			must(s, err)
			for _, l := range batch.Leases {
				leased[l.Run]++
			}
		}
		return []func(){take, take}, func() {
			if len(leased) != 3 || leased["a"]+leased["b"]+leased["c"] != 3 {
				s.Errorf("leased were %v", leased)
			}
		}
	})
}

func TestT3ABusyRunDoesNotStarveAMutation(t *testing.T) {
	s := &scene{T: t, store: memory.New(memory.Options{})}
	s.ref = publish(t, s.store, backend.Tenantless(), "g")
	s.put("a")
	token := s.take().Token
	calls := 0
	m, err := s.store.MutateRun(context.Background(), backend.System(), "a", "cancel", func(current *run.Document) (backend.Mutation, error) {
		// The run moves on whenever the function has seen it, as long as it can.
		if calls++; calls <= 3 {
			_, err := s.commit(step(current, token, epoch, checkpoint.Schedule{Kind: checkpoint.Retain}))
			must(t, err)
		}
		return cancel(current)
	})
	must(t, err)
	if calls != 4 || !m.Committed || m.Document.Seq != 5 || s.inspect("a").Document.Status != run.Cancelled {
		t.Errorf("after %d calls: %+v", calls, m)
	}
}
