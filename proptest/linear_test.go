package proptest

import (
	"testing"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// TestModelsWithOtherHistoriesAreNotTheSame: the search for an order passes over a state that it
// has seen. Two orders of the same commits that end with the same one are not the same state,
// since the events tell them apart.
func TestModelsWithOtherHistoriesAreNotTheSame(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	ref, _ := published("proof", 0)
	after := func(order ...checkpoint.ID) *model {
		m := newModel()
		in := opening("r1", ref, now, checkpointID(1))
		m.insert(tenantless, in)
		for i, id := range order {
			d := *in.Document
			d.Seq = int64(i) + 2
			m.runs["r1"].apply(run.Proposal{Document: &d, Type: checkpoint.StepCommitted}, id)
		}
		return m
	}
	a, b, c := checkpointID(2), checkpointID(3), checkpointID(4)
	if !after(a, b, c).same(after(a, b, c)) {
		t.Error("one history gives two states")
	}
	if after(a, b, c).same(after(b, a, c)) {
		t.Error("two histories give one state")
	}
}
