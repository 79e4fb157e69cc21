package proptest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// clone is a copy of the model that may be moved without moving the model.
func (m *model) clone() *model {
	c := &model{runs: make(map[string]*modelRun, len(m.runs)), keys: maps.Clone(m.keys), tokens: m.tokens}
	for id, r := range m.runs {
		copied := *r
		copied.events, copied.commits = slices.Clone(r.events), maps.Clone(r.commits)
		c.runs[id] = &copied
	}
	return c
}

// same reports whether two models of one history will answer alike.
func (m *model) same(o *model) bool {
	if len(m.runs) != len(o.runs) {
		return false
	}
	for id, a := range m.runs {
		b := o.runs[id]
		if b == nil || a.checkpoint != b.checkpoint || a.token != b.token || !a.wake.Equal(b.wake) || !a.claimedAt.Equal(b.claimedAt) ||
			a.attempts != b.attempts || a.abandons != b.abandons || !a.poisonAt.Equal(b.poisonAt) || a.poisonFor != b.poisonFor ||
			!maps.Equal(a.commits, b.commits) {
			return false
		}
	}
	return true
}

// linearizations are orders of calls, as porcupine looks for them: the model, moved by one
// call after the other, must answer as the store did.
func linearizations(initial *model) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			c := input.(*operation)
			next := state.(*model).clone()
			fits := c.fits(next)
			return fits || c.lost, next
		},
		Equal: func(a, b any) bool { return a.(*model).same(b.(*model)) },
		DescribeOperation: func(input, _ any) string {
			c := input.(*operation)
			if c.lost {
				return c.text + " -> (no answer)"
			}
			return c.text + " -> " + c.answer
		},
		DescribeState: func(state any) string {
			m := state.(*model)
			var b strings.Builder
			for _, id := range m.ids() {
				r := m.runs[id]
				fmt.Fprintf(&b, "%s: %s, sequence %d, held %v, attempts %d, abandons %d, poisoned %v\n",
					id, r.document.Status, r.document.Seq, r.token != "", r.attempts, r.abandons, r.poisonFor != "")
			}
			return b.String()
		},
	}
}

// timed are calls as porcupine takes them. What nobody heard of may take effect at any
// time after it began, and so, as never, after everything else.
func timed(calls []*operation) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, c := range calls {
		op := porcupine.Operation{ClientId: c.worker, Input: c, Call: c.begun, Output: c.answer, Return: c.ended}
		if c.lost || c.ended == 0 {
			op.Return = math.MaxInt64
		}
		ops = append(ops, op)
	}
	return ops
}

// order finds an order of the calls, and of what the store shows at last, in which the model
// answers as the store did.
func order(initial *model, calls []*operation, last picture, timeout time.Duration) ([]*operation, porcupine.CheckResult, porcupine.LinearizationInfo) {
	at := int64(0)
	for _, c := range calls {
		at = max(at, c.begun, c.ended)
	}
	calls = append(slices.Clone(calls), &operation{
		text: "the store shows", begun: at + 1, ended: at + 2, judged: func(*judge, *model) {},
		fits: func(m *model) bool {
			want := m.picture()
			seen := last
			seen.Graphs = nil
			return samePicture(want, seen)
		},
	})
	result, info := porcupine.CheckOperationsVerbose(linearizations(initial), timed(calls), timeout)
	if result != porcupine.Ok {
		return nil, result, info
	}
	var found []*operation
	for _, op := range info.PartialLinearizationsOperations()[0][0] {
		found = append(found, op.Input.(*operation))
	}
	return found, result, info
}

// judgeOrder holds C1, C2, C5, C6, C12 and A7 against what the store answered, in an order that
// was found.
func judgeOrder(initial *model, found []*operation) string {
	j, m := newJudge(), initial.clone()
	j.begin()
	for _, c := range found {
		if !c.lost {
			c.judged(j, m)
		}
		if len(j.verdicts) > 0 {
			return j.verdicts[0]
		}
		m = m.clone()
		c.fits(m)
		if c.lost {
			j.overhear(m)
		}
	}
	return ""
}
