package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

func TestObserveSeesEveryCommitOnceInOrderAndCannotHarm(t *testing.T) {
	var mu sync.Mutex
	var seqs []int64
	var events []run.Event
	e := newEngine(t, newMemory(nil), options{Observe: func(d *run.Document, es []run.Event) {
		mu.Lock()
		defer mu.Unlock()
		seqs = append(seqs, d.Seq)
		events = append(events, es...)
		panic("a hook of the host's")
	}}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	drain(t, e)
	if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
		t.Fatal(err)
	}
	drain(t, e)
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	if fmt.Sprint(seqs) != "[1 2 3 4]" {
		t.Errorf("observed %v", seqs)
	}
	stored, err := e.Events(t.Context(), r.ID, backend.EventQuery{Limit: backend.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != len(stored.Events) {
		t.Errorf("%d events observed, %d stored", len(events), len(stored.Events))
	}
	for i, seen := range events {
		if seen.Seq != stored.Events[i].Seq || seen.Type != stored.Events[i].Type {
			t.Errorf("event %d observed as %v, stored as %v", i, seen, stored.Events[i])
		}
	}
}

func TestPanicsOfAnObserverOfAbandonsDoNoHarm(t *testing.T) {
	store := newMemory(nil)
	able := newEngine(t, store, options{}, ask)
	r := start(t, &able.Client, publish(t, &able.Client, question), nil, lifecycle.StartOptions{})
	drain(t, newEngine(t, store, options{Observers: whenAbandoned(func(lifecycle.Abandon) { panic(1) })}))
	if got := inspect(t, &able.Client, r.ID); got.Abandons != 1 {
		t.Errorf("abandons %d", got.Abandons)
	}
}

// H33: records carry the run, the node and the sequence, and neither payloads nor tokens.
func TestH33LogsNameRunNodeAndSequenceAndNeitherPayloadsNorTokens(t *testing.T) {
	const secret = "s3cr3t"
	var log records
	tokens := &tokenStore{Store: newMemory(nil)}
	type in struct {
		Name string `json:"name"`
	}
	attempts := 0
	e := newEngine(t, tokens, options{Logger: log.logger(), Observe: func(*run.Document, []run.Event) { panic(secret) }},
		node.Of("work", 1, func(_ context.Context, i in) (told, error) {
			if attempts++; attempts == 1 {
				panic(i.Name)
			}
			return told{Answer: i.Name}, nil
		}))
	ref := publish(t, &e.Client, `
id: greeting
inputs: {name: {schema: {type: string}, required: true}}
fields: {answer: {schema: {type: string}}}
nodes: {work: {use: work, retry: {max_attempts: 2, backoff: {initial: 0.001s}}}}
edges: {a: {from: $start, to: work}}
outputs: {answer: {from: answer}}
`)
	r := start(t, &e.Client, ref, map[string]string{"name": secret}, lifecycle.StartOptions{})
	for inspect(t, &e.Client, r.ID).Status == run.Running {
		drain(t, e)
	}
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	drain(t, newEngine(t, tokens, options{Logger: log.logger()})) // abandons nothing: done
	text := log.String()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["run"] != nil && record["run"] != r.ID {
			t.Errorf("run %v", record["run"])
		}
		if record["msg"] == "belay: committed" && record["seq"] == nil {
			t.Errorf("no seq: %s", line)
		}
	}
	if !strings.Contains(text, r.ID) || strings.Contains(text, secret) {
		t.Errorf("the log does not name the run, or holds the payload:\n%s", text)
	}
	if len(tokens.seen) == 0 {
		t.Fatal("no token was seen")
	}
	for _, token := range tokens.seen {
		if strings.Contains(text, string(token)) {
			t.Errorf("the log holds a token:\n%s", text)
		}
	}
}

// tokenStore notes the tokens of the commits it gets.
type tokenStore struct {
	backend.Store
	seen []claim.Token
}

func (s *tokenStore) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	s.seen = append(s.seen, c.Token)
	return s.Store.Commit(ctx, scope, c)
}

func TestPanicOfBelaysOwnCodeEndsInPoisonAndNotInTheHostsProcess(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := &panicking{Store: newMemory(clock)}
	e := newEngine(t, store, options{Clock: clock, MaxAttempts: 2}, act("work", func(context.Context) error { return nil }))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	for range 3 {
		clock.AdvanceTo(drain(t, e).Next)
	}
	_, err := e.Await(t.Context(), r.ID)
	if !errors.Is(err, lifecycle.ErrPoisoned) || store.commits != 2 {
		t.Errorf("%v after %d commits", err, store.commits)
	}
}

// panicking panics in every commit.
type panicking struct {
	backend.Store
	commits int
}

func (s *panicking) Commit(context.Context, backend.Scope, backend.Commit) (backend.Committed, error) {
	s.commits++
	panic("no commits today")
}

func TestAFailedRunIsLoggedOnceWithItsNodeAndCodeAndNotItsText(t *testing.T) {
	var log records
	e := newEngine(t, newMemory(nil), options{Logger: log.logger()}, act("work", func(context.Context) error { return errors.New("secret") }))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	drain(t, e)
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Failed)
	warned := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"WARN"`) && strings.Contains(line, `"run":"`+r.ID) && strings.Contains(line, `"node":"work"`) && strings.Contains(line, `"reason":"`) {
			warned++
		}
	}
	if warned != 1 || strings.Contains(log.String(), "secret") {
		t.Errorf("warned %d times:\n%s", warned, log.String())
	}
}

func TestErrorsThatAUserMeetsSayWhatToDoNext(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, awaited := e.Await(ended, r.ID)
	if _, err := e.Cancel(t.Context(), r.ID, ""); err != nil {
		t.Fatal(err)
	}
	_, freed := e.RetryPoisoned(t.Context(), r.ID)
	for _, tt := range []struct {
		err  error
		says []string
	}{
		{awaited, []string{r.ID, "await it longer", "an engine runs"}},
		{freed, []string{r.ID, "Inspect", "start a new run"}},
	} {
		for _, says := range tt.says {
			if tt.err == nil || !strings.Contains(tt.err.Error(), says) {
				t.Errorf("%v: does not say %q", tt.err, says)
			}
		}
	}
}
