package graphtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belay-run/belay/run"
)

// Property is what must hold of every history of a graph, or something that Check is told.
type Property struct {
	set func(s *settings)
	// holds judges a history that came to its end; "" is yes.
	holds func(h *history) string
}

type settings struct {
	input   any
	answers func(q run.Interrupt) any
	commits int
}

// Finishes: every run comes to its end, done, failed or cancelled. A run that is poisoned, that
// waits for something that never comes, or that makes more commits than [MaxCommits] does not.
var Finishes = Property{holds: func(h *history) string { return h.stuck }}

// EffectsOnce: what nodes do outside is safe to repeat. It judges what [Effect] was told.
var EffectsOnce = Property{holds: func(h *history) string {
	if len(h.world.verdicts) > 0 {
		return h.world.verdicts[0]
	}
	return ""
}}

// misfits are the failures by which a graph contradicts itself.
var misfits = []string{run.CodeInvalidUpdate, run.CodeInvalidAsk, run.CodeReducer, run.CodeGuard, run.CodeTooLarge}

// OutputsFit: nothing that a node writes or asks, and nothing that the run puts out, breaks its
// schema; no guard and no reducer fails.
var OutputsFit = Property{holds: func(h *history) string {
	if len(h.misfits) > 0 {
		return h.misfits[0]
	}
	if f := h.last.Failure; f != nil && slices.Contains(misfits, f.Code) {
		return fmt.Sprintf("the run failed with %s at node %q: %s", f.Code, f.Node, f.Message)
	}
	return ""
}}

// ReadsKey: every attempt of these nodes that completes has read node.IdempotencyKey.
func ReadsKey(nodes ...string) Property {
	return Property{holds: func(h *history) string {
		for _, n := range nodes {
			if i := slices.IndexFunc(h.unread, func(attempt string) bool { return strings.HasPrefix(attempt, n+" ") }); i >= 0 {
				return fmt.Sprintf("attempt %s did not read its idempotency key", h.unread[i])
			}
		}
		return ""
	}}
}

// Input is what the runs start with. Defaults to the empty object.
func Input(v any) Property { return Property{set: func(s *settings) { s.input = v }} }

// Answers says what a question is answered. By default a value is drawn that fits the question's
// schema, from a few plain ones.
func Answers(answer func(q run.Interrupt) any) Property {
	return Property{set: func(s *settings) { s.answers = answer }}
}

// MaxCommits is how many commits a run may make before it counts as stuck. Defaults to 500.
func MaxCommits(n int) Property { return Property{set: func(s *settings) { s.commits = n }} }
