package graphtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// fate is what happens to one attempt of a node.
type fate string

const (
	succeeds  fate = "runs"
	isLost    fate = "runs, and its outcome is lost"
	isTwice   fate = "runs twice"
	isSlow    fate = "takes long"
	isLate    fate = "comes after its deadline"
	fails     fate = "fails, and may be tried again"
	isFinal   fate = "fails for good"
	panics    fate = "panics"
	cancelled fate = "is cancelled under way"
)

// fates are those that are drawn, the plainest first; those that end a run are rare.
var fates = []fate{succeeds, succeeds, succeeds, isLost, isLost, isTwice, isTwice, isSlow, isLate, fails, fails, panics, panics, isFinal, cancelled}

// errInjected is what a node that is made to fail answers.
var errInjected = errors.New("the outcome is lost: injected by graphtest")

// wrapped is a registry of the graph's node types in which every attempt goes through the history.
func (h *history) wrapped(original *node.Registry) *node.Registry {
	prepared, err := original.Prepare(h.graph, 0)
	if err != nil {
		h.t.Fatalf("the nodes cannot run the graph: %v", err)
	}
	wrapped := node.NewRegistry()
	var added []string
	for _, n := range h.graph.Nodes() {
		name := fmt.Sprintf("%s %d", n.Use, n.Version)
		if slices.Contains(added, name) {
			continue
		}
		added = append(added, name)
		contract, _ := original.NodeType(n.Use, n.Version)
		// The stored config is of this version, and is upgraded by the original.
		contract.Version, contract.Accepts, contract.Check = n.Version, nil, nil
		wrapped.Add(node.Raw(contract, func(site node.Site) (node.Func, error) {
			return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
				return h.attempt(ctx, call, prepared, h.graph.Node(site.Node))
			}, nil
		}))
	}
	return wrapped
}

// attempt is one attempt of a node, with its fate.
func (h *history) attempt(ctx context.Context, call *node.Call, original *node.Prepared, n *graph.CompiledNode) (map[string]value.Value, error) {
	h.inside.Add(1)
	defer h.inside.Done()
	how := h.fateOf(n)
	h.say("node %s, attempt %s: %s", call.Node, call.AttemptID, how)
	switch how {
	case fails:
		return nil, errors.New("a failure injected by graphtest")
	case isFinal:
		return nil, node.Permanent(errors.New("a permanent failure injected by graphtest"))
	case panics:
		panic("injected by graphtest")
	case isSlow:
		slow := 2 * time.Hour
		if n.Timeout > 0 {
			slow = min(slow, n.Timeout/2)
		}
		h.clock.Advance(slow)
	case cancelled:
		if _, err := h.client().Cancel(context.WithoutCancel(ctx), call.Run, "injected by graphtest"); err != nil {
			h.say("the cancel was refused: %v", err)
		}
	case isTwice:
		if _, err := h.call(ctx, call, original); err != nil {
			return nil, err
		}
	}
	result, err := h.call(ctx, call, original)
	switch {
	case err != nil:
		return nil, err
	case how == isLost:
		return nil, errInjected
	case how == isLate && n.Timeout > 0:
		h.clock.Advance(n.Timeout + time.Second)
	}
	return answer(result)
}

// call lets the real node run once.
func (h *history) call(ctx context.Context, call *node.Call, original *node.Prepared) (run.Result, error) {
	seen := *call
	read := false
	seen.KeyRead = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		read = true
	}
	result, err := original.Run(context.WithValue(ctx, worldKey{}, h.world), &seen)
	h.mu.Lock()
	defer h.mu.Unlock()
	if read {
		h.reads++
	} else if err == nil && result.Kind() == run.ResultCompleted {
		h.unread = append(h.unread, call.Node+" ("+call.AttemptID+")")
	}
	if f, failed := result.Failure(); failed && slices.Contains(misfits, f.Code) {
		h.misfits = append(h.misfits, fmt.Sprintf("node %s failed with %s: %s", call.Node, f.Code, f.Message))
	}
	return result, err
}

// answer says to the engine again what a node's result said.
func answer(r run.Result) (map[string]value.Value, error) {
	failure, failed := r.Failure()
	err := errors.New(failure.Message)
	if failed && failure.Details != nil {
		err = node.WithDetails(err, failure.Details)
	}
	switch r.Kind() {
	case run.ResultCompleted:
		return r.Update(), nil
	case run.ResultSkipped:
		return nil, node.Skip(r.Reason())
	case run.ResultSnoozed:
		return nil, node.Snooze(r.Until())
	case run.ResultAsked:
		q := r.Question()
		asked := node.Question{ID: q.ID, Field: q.Field, Schema: q.Schema, Deadline: q.Deadline}
		if q.Prompt != nil {
			asked.Prompt = q.Prompt
		}
		if q.Default != nil {
			asked.Default = q.Default
		}
		return nil, node.Ask(asked)
	case run.ResultPermanent:
		return nil, node.Permanent(err)
	case run.ResultRetry:
		if !r.Until().IsZero() {
			return nil, node.RetryAfter(err, r.Until())
		}
		return nil, err
	default:
		return nil, node.Permanent(fmt.Errorf("the node's result is %v", r.Kind()))
	}
}
