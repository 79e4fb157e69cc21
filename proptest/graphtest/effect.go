package graphtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/node"
)

// world is the external system of one history.
type world struct {
	mu       sync.Mutex
	effects  map[string]effect // by key
	keys     map[string]string // by task and what was asked for
	repeats  int
	verdicts []string
}

type effect struct {
	task string
	what any
}

type worldKey struct{}

func newWorld() *world { return &world{effects: map[string]effect{}, keys: map[string]string{}} }

// Effect asks the external system of the history that the node of ctx belongs to for something,
// under an idempotency key, and reports whether it is done now: false says that it was done
// under the key before. A node that has several effects adds something to the key for each, the same
// every time. what is compared with what was asked before under the key. Outside of a Check
// nothing is known, and the answer is true.
func Effect(ctx context.Context, key string, what any) (first bool) {
	w, ok := ctx.Value(worldKey{}).(*world)
	if !ok {
		return true
	}
	call, ok := node.FromContext(ctx)
	if !ok {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	say := func(format string, args ...any) {
		w.verdicts = append(w.verdicts, fmt.Sprintf("node %s: ", call.Node)+fmt.Sprintf(format, args...))
	}
	asked := fmt.Sprintf("%s %#v", call.Task, what)
	if before, known := w.keys[asked]; known && before != key {
		say("task %s asked twice for %#v, under the keys %q and %q: the effect is made twice. Use node.IdempotencyKey, which is the same in every attempt", call.Task, what, before, key)
	}
	w.keys[asked] = key
	if key == "" {
		say("task %s asked for %#v without a key: nothing keeps it from being done twice. Use node.IdempotencyKey", call.Task, what)
		return true
	}
	before, known := w.effects[key]
	switch {
	case !known:
		w.effects[key] = effect{call.Task, what}
		return true
	case before.task != call.Task:
		say("the tasks %s and %s used one key, %q: the second effect is never made. Use node.IdempotencyKey, which is another one for every task", before.task, call.Task, key)
	case !cmp.Equal(before.what, what):
		say("task %s asked under the key %q for %#v, and before for %#v: what is asked for must be the same in every attempt", call.Task, key, what, before.what)
	}
	w.repeats++
	return false
}
