package lifecycle

import (
	"context"
	"errors"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
)

// NewRun is one of the runs that StartMany starts.
type NewRun struct {
	// Input is anything that encodes to a JSON object; nil is an empty one.
	Input any
	StartOptions
}

// Started is what became of one of them: a Run, or why there is none.
type Started struct {
	*Run
	Err error
}

const (
	// startTogether bounds how many runs are stored by one call of the backend.
	startTogether = 300
	// startBytes is how many bytes of input one call carries before the next run goes with another.
	startBytes = 4 << 20
	// largeStart is the size of an input above which a start shares no call with others: it would gain nothing.
	largeStart = 64 << 10
)

var errUnanswered = errors.New("belay: the backend did not answer for every run: starting with the same ids or keys again is safe")

// StartMany starts many runs of one graph, with few round trips where the backend has feature X2: one for 300
// runs, or for fewer large ones. Each has an answer of its own, in the order given, as Start answers; a
// bad one harms no other. The error is of what concerns all of them: then none was started. They are
// stored as due.
func (c *Client) StartMany(ctx context.Context, ref graph.Ref, runs []NewRun) ([]Started, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if _, err := check(ref, nil, StartOptions{}); err != nil {
		return nil, err
	}
	e := c.engine
	ref, p, err := c.published(ctx, ref)
	if err != nil {
		return nil, err
	}
	now, err := e.present(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([]Started, len(runs))
	for next := 0; next < len(runs); {
		most := min(startTogether, len(runs)-next)
		inits := make([]backend.Initialization, 0, most)
		indexes := make([]int, 0, most)
		told := make([]context.Context, 0, most)
		bytes := 0
		for ; next < len(runs) && len(inits) < most && bytes < startBytes; next++ {
			g, err := check(ref, runs[next].Input, runs[next].StartOptions)
			if err != nil {
				answers[next].Err = err
				continue
			}
			init, seen, err := c.initialize(ctx, p, g, now)
			if err != nil {
				answers[next].Err = err
				continue
			}
			inits, indexes, told = append(inits, init), append(indexes, next), append(told, seen)
			bytes += len(g.input)
		}
		began := e.clock.Now()
		for k, inserted := range c.insertAll(ctx, inits) {
			answer := &answers[indexes[k]]
			c.tellStarted(told[k], inits[k].Document, inserted.Inserted, inserted.Err)
			if answer.Err = inserted.Err; inserted.Err != nil {
				continue
			}
			answer.Run, answer.Err = c.started(ctx, e.store, inits[k], inserted.Inserted)
			if !inserted.Existing {
				e.observe(told[k], inits[k].Document, inits[k].Events)
				e.tellCommitted(told[k], c.owner, &inits[k].Proposal, false, e.clock.Now().Sub(began))
				e.becomesDue(inits[k].Proposal)
			}
		}
	}
	return answers, nil
}

// insertAll stores runs, sending again, with a bound, those whose error says that this may help.
func (c *Client) insertAll(ctx context.Context, inits []backend.Initialization) []backend.InsertResult {
	e := c.engine
	results := make([]backend.InsertResult, len(inits))
	batches := e.features.Batches
	if batches == nil {
		for i, init := range inits {
			results[i].Err = e.retry(ctx, func() (err error) {
				results[i].Inserted, err = e.store.InsertRun(ctx, c.owner, init)
				return err
			})
		}
		return results
	}
	left := make([]int, len(inits))
	for i := range left {
		left[i] = i
	}
	for n := 0; len(left) > 0; n++ {
		send := make([]backend.Initialization, len(left))
		for k, i := range left {
			send[k] = inits[i]
		}
		var again []int
		inserted := batches.InsertRuns(ctx, c.owner, send)
		for k, i := range left {
			result := backend.InsertResult{Err: errUnanswered}
			if len(inserted) == len(send) {
				result = inserted[k]
			}
			result.Err = backend.StillOpen(result.Err, backend.Classify(results[i].Err) == backend.Unknown)
			results[i] = result
			if result.Err != nil && backend.Classify(result.Err) != backend.Permanent {
				again = append(again, i)
			}
		}
		if n == retryLimit || len(again) > 0 && !e.sleep(ctx, retryDelay(n)) {
			break
		}
		if left = again; len(left) > 1 {
			left = append(left[1:], left[0]) // it may be what spoils the call for those behind it
		}
	}
	return results
}
