package backend_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/internal/sealtest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func aFact(seq int64, node string) run.Event {
	return run.Event{Run: "r", Seq: seq, Type: run.EventNodeCompleted, At: time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC), Node: node}
}

func aClosing(seq int64) run.Event {
	e := aFact(seq, "")
	e.Type, e.Checkpoint, e.Commit = run.EventCheckpointCommitted, checkpoint.StepCommitted, seq
	return e
}

func content(t interface{ Fatal(...any) }, e run.Event) string {
	raw, err := run.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestEventsOfACommitAreOneRow: events that follow each other are one row, under the last one's
// sequence and with the commit's id when it closes there; a gap parts rows, one event is a row as it is,
// and in format 1 each is.
func TestEventsOfACommitAreOneRow(t *testing.T) {
	a, b, c, d, e := aFact(3, "a"), aFact(4, `b ]}"\{[,`), aClosing(5), aFact(8, "d"), aFact(9, "e")
	for _, test := range []struct {
		name   string
		events []run.Event
		format int
		want   []string
	}{
		{"none", nil, 0, nil},
		{"one", []run.Event{a}, 0, []string{"3-3  " + content(t, a)}},
		{"several", []run.Event{a, b, c}, 0, []string{"3-5 id [3," + content(t, a) + "," + content(t, b) + "," + content(t, c) + "]"}},
		{"in the newest format", []run.Event{a, b}, run.Format, []string{"3-4  [3," + content(t, a) + "," + content(t, b) + "]"}},
		{"a gap", []run.Event{a, c, d, e}, 0, []string{"3-3  " + content(t, a), "5-5 id " + content(t, c), "8-9  [8," + content(t, d) + "," + content(t, e) + "]"}},
		{"format 1", []run.Event{a, b, c}, 1, []string{"3-3  " + content(t, a), "4-4  " + content(t, b), "5-5 id " + content(t, c)}},
	} {
		rows, err := backend.PackEvents(nil, backend.Tenantless(), "id", test.events, test.format)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%d-%d %s %s", r.First, r.Seq, r.CheckpointID, r.Body))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s:\n%s", test.name, diff)
		}
	}
}

// TestARowEndsWhenItIsFull: what is read for one event is bounded.
func TestARowEndsWhenItIsFull(t *testing.T) {
	events := make([]run.Event, 20)
	for i := range events {
		events[i] = aFact(int64(i+1), "n")
		events[i].Data = value.Value(`"` + strings.Repeat("x", 10_000) + `"`)
	}
	rows, err := backend.PackEvents(nil, backend.Tenantless(), "id", events, 0)
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		if len(r.Body) > 80_000 {
			t.Errorf("a row of %d bytes", len(r.Body))
		}
	}
}

// TestPackingAllocatesABufferAndRows: and nothing else.
func TestPackingAllocatesABufferAndRows(t *testing.T) {
	events := []run.Event{aFact(3, "a"), aFact(4, "b"), aFact(5, "c"), aClosing(6)}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := backend.PackEvents(nil, backend.Tenantless(), "id", events, 0); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// history is events of one run, ascending and not always without a gap, and the rows that commits made of
// them, each by a writer of its own.
type history struct {
	sealer backend.Sealer
	events []run.Event
	rows   []backend.EventRow
}

func aHistory(t *rapid.T) history {
	var h history
	if rapid.Bool().Draw(t, "sealed") {
		h.sealer = sealtest.Rotating(t, "k1", "k2", "")
	}
	seq := rapid.Int64Range(1, 1000).Draw(t, "first")
	for range rapid.IntRange(0, 5).Draw(t, "commits") {
		var events []run.Event
		for range rapid.IntRange(1, 6).Draw(t, "events") {
			e := aFact(seq, rapid.StringOf(rapid.SampledFrom([]rune(`ab{}[],"\é:`))).Draw(t, "node"))
			if rapid.Bool().Draw(t, "data") {
				e.Data = rapid.SampledFrom([]value.Value{value.Value(`["]",{"a":[1,"\\\""]}]`), value.Value(`"],["`), value.Value(`{"b":{}}`)}).Draw(t, "value")
			}
			events = append(events, e)
			seq += int64(rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 2, 90}).Draw(t, "step"))
		}
		rows, err := backend.PackEvents(h.sealer, backend.Tenant("acme"), "id", events, rapid.IntRange(0, run.Format).Draw(t, "format"))
		if err != nil {
			t.Fatal(err)
		}
		h.events, h.rows = append(h.events, events...), append(h.rows, rows...)
	}
	return h
}

// list reads as a store does: the rows after a sequence, then what of them comes after it.
func (h history) list(t *rapid.T, after int64, limit int) (events []run.Event, more bool) {
	for _, r := range h.rows {
		if r.Seq <= after {
			continue
		}
		for e, err := range backend.OpenEvents(h.sealer, backend.Tenant("acme"), "r", r.Seq, r.Body, after) {
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == limit {
				return events, true
			}
			events = append(events, e)
		}
	}
	return events, false
}

// TestRowsListAsTheirEvents (E2): any mixture of rows lists exactly as the events do, from everywhere
// and with every limit; each row says where it begins, without a key, and ends with its last event.
func TestRowsListAsTheirEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := aHistory(t)
		last := int64(0)
		for _, r := range h.rows {
			first, err := backend.FirstEvent("r", r.Seq, r.Body[:min(len(r.Body), backend.EventRowHead)])
			if err != nil || first != r.First || first <= last {
				t.Fatalf("a row after %d begins with %d, and says %d, %v", last, r.First, first, err)
			}
			last = r.Seq
			e, err := backend.EventAt(h.sealer, backend.Tenant("acme"), "r", r.Seq, r.Body, r.Seq)
			if err != nil || e == nil || e.Seq != r.Seq {
				t.Fatalf("a row ends with event %v, %v", e, err)
			}
		}
		from, to := int64(0), int64(3)
		if n := len(h.events); n > 0 {
			from, to = h.events[0].Seq-1, h.events[n-1].Seq
		}
		for _, after := range []int64{0, from, to, rapid.Int64Range(from, to).Draw(t, "after")} {
			for limit := 1; limit <= len(h.events)+1; limit++ {
				want := slices.Clone(h.events)
				want = slices.DeleteFunc(want, func(e run.Event) bool { return e.Seq <= after })
				wantMore := len(want) > limit
				want = want[:min(limit, len(want))]
				got, more := h.list(t, after, limit)
				if len(got)+len(want) > 0 && !cmp.Equal(want, got) || more != wantMore {
					t.Fatalf("after %d, %d at most, more %v:\n%s", after, limit, more, cmp.Diff(want, got))
				}
			}
		}
	})
}

// TestEqualEventsAreStoredOnce (E1): of events that are proposed again those that a row holds are left
// out, the others stay, and one with other content is a conflict.
func TestEqualEventsAreStoredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := aHistory(t)
		var proposed, want []run.Event
		wrong := int64(0)
		for _, e := range h.events {
			switch rapid.IntRange(0, 8).Draw(t, "proposed") {
			case 0:
				if wrong == 0 {
					wrong = e.Seq
				}
				e.Task = "other"
				proposed = append(proposed, e)
			case 1, 2, 3, 4:
				proposed = append(proposed, e)
			}
		}
		for seq := int64(1); seq < 8; seq++ {
			if !slices.ContainsFunc(h.events, func(e run.Event) bool { return e.Seq == seq }) {
				proposed, want = append(proposed, aFact(seq, "new")), append(want, aFact(seq, "new"))
			}
		}
		slices.SortFunc(proposed, func(a, b run.Event) int { return int(a.Seq - b.Seq) })
		given := slices.Clone(proposed)
		left, err := proposed, error(nil)
		for _, r := range h.rows {
			if left, err = backend.NewEvents(h.sealer, backend.Tenant("acme"), r, left); err != nil {
				break
			}
		}
		if wrong != 0 {
			if !errors.Is(err, backend.ErrEventConflict) || !strings.Contains(err.Error(), "sequence "+strconv.FormatInt(wrong, 10)) {
				t.Fatalf("event %d is another one: %v", wrong, err)
			}
			return
		}
		if err != nil || len(left)+len(want) > 0 && !cmp.Equal(want, left) {
			t.Fatalf("%v:\n%s", err, cmp.Diff(want, left))
		}
		if !cmp.Equal(given, proposed) {
			t.Fatal("what was given has changed")
		}
	})
}

// damagedRows are bodies under the sequence 5 that are none.
func damagedRows(t interface{ Fatal(...any) }) map[string]string {
	three, four, five, six := content(t, aFact(3, "a")), content(t, aFact(4, "b")), content(t, aFact(5, "c")), content(t, aFact(6, "d"))
	other := aFact(5, "c")
	other.Run = "other"
	return map[string]string{
		"empty":                          "",
		"no event":                       "[5,]",
		"a list and no beginning":        "[" + four + "," + five + "]",
		"no comma":                       "[4",
		"a beginning of zero":            "[0," + four + "," + five + "]",
		"a beginning that is wrong":      "[-4," + four + "," + five + "]",
		"a beginning that is padded":     "[04," + four + "," + five + "]",
		"a beginning that is large":      "[99999999999999999999999," + four + "]",
		"one event in a list":            "[5," + five + "]",
		"a beginning after its end":      "[6," + six + "]",
		"too few":                        "[3," + four + "," + five + "]",
		"too few, of its beginning":      "[3," + three + "," + four + "]",
		"too many":                       "[4," + four + "," + five + "," + six + "]",
		"a gap":                          "[3," + three + "," + five + "]",
		"out of order":                   "[4," + five + "," + four + "]",
		"twice":                          "[4," + five + "," + five + "]",
		"cut off":                        "[4," + four + "," + five,
		"cut off in an event":            "[4," + four + "," + five[:20],
		"something follows":              "[4," + four + "," + five + "] ",
		"of another run":                 "[4," + four + "," + content(t, other) + "]",
		"sealed":                         "[4,\x00belay\x01\x02k1garbage",
		"in an envelope that is cut off": "[4,\x00belay\x01",
	}
}

// TestDamagedRowsAreNoEvents (E3): a row that is damaged anywhere is a typed error, when it is read to its end,
// and never fewer events, nor none.
func TestDamagedRowsAreNoEvents(t *testing.T) {
	sealer := sealtest.Keys(t, "k1")
	for name, stored := range damagedRows(t) {
		var wrong error
		for _, err := range backend.OpenEvents(sealer, backend.Tenantless(), "r", 5, []byte(stored), 0) {
			wrong = err
		}
		corrupt, ok := errors.AsType[*backend.CorruptError](wrong)
		if !ok || corrupt.Run != "r" || !strings.HasPrefix(corrupt.What, "event ") {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

// TestASealedRowOpensAtItsPlaceOnly: not under another sequence, run or owner, not with another beginning, and
// not out of its list; without its key it says so, and where it begins.
func TestASealedRowOpensAtItsPlaceOnly(t *testing.T) {
	sealer := sealtest.Keys(t, "k1")
	rows, err := backend.PackEvents(sealer, backend.Tenantless(), "id", []run.Event{aFact(3, "a"), aFact(4, "b"), aFact(5, "c")}, 0)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	body := rows[0].Body
	if !bytes.HasPrefix(body, []byte("[3,\x00belay")) || bytes.Contains(body, []byte("node")) || rows[0].Digest != nil {
		t.Fatalf("it is stored as %q", body)
	}
	read := func(s backend.Sealer, owner backend.Owner, id string, seq int64, body []byte) (n int, wrong error) {
		for _, err := range backend.OpenEvents(s, owner, id, seq, body, 0) {
			if wrong = err; err == nil {
				n++
			}
		}
		return n, wrong
	}
	if n, err := read(sealer, backend.Tenantless(), "r", 5, body); n != 3 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	for name, err := range map[string]error{
		"another sequence":  errorOf(read(sealer, backend.Tenantless(), "r", 6, body)),
		"another run":       errorOf(read(sealer, backend.Tenantless(), "q", 5, body)),
		"another owner":     errorOf(read(sealer, backend.Tenant("acme"), "r", 5, body)),
		"another beginning": errorOf(read(sealer, backend.Tenantless(), "r", 5, append([]byte("[2"), body[2:]...))),
		"out of its list":   errorOf(read(sealer, backend.Tenantless(), "r", 5, body[3:])),
	} {
		if !errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := read(nil, backend.Tenantless(), "r", 5, body); !errors.Is(err, backend.ErrSealed) {
		t.Errorf("without the key: %v", err)
	}
	if first, err := backend.FirstEvent("r", 5, body); first != 3 || err != nil {
		t.Errorf("it begins with %d, %v", first, err)
	}
}

func errorOf(_ int, err error) error { return err }

// FuzzOpenEvents: whatever is stored, what is read is dense, of its run and ends at the row's sequence, or
// the end is a typed error; and what was read is packed to the same again.
func FuzzOpenEvents(f *testing.F) {
	for _, stored := range damagedRows(f) {
		f.Add(int64(5), []byte(stored))
	}
	f.Add(int64(5), []byte("[4,"+content(f, aFact(4, "b"))+","+content(f, aFact(5, "c"))+"]"))
	f.Add(int64(5), []byte(content(f, aFact(5, "c"))))
	f.Fuzz(func(t *testing.T, seq int64, stored []byte) {
		var events []run.Event
		for e, err := range backend.OpenEvents(nil, backend.Tenantless(), "r", seq, stored, 0) {
			if err != nil {
				if !errors.Is(err, backend.ErrCorrupt) && !errors.Is(err, backend.ErrSealed) {
					t.Fatalf("an error of no type: %v", err)
				}
				return
			}
			if n := len(events); e.Run != "r" || n > 0 && e.Seq != events[n-1].Seq+1 {
				t.Fatalf("event %d of run %s after %d others", e.Seq, e.Run, n)
			}
			events = append(events, e)
		}
		if n := len(events); n == 0 || events[n-1].Seq != seq {
			t.Fatalf("%d events under the sequence %d", n, seq)
		}
		rows, err := backend.PackEvents(nil, backend.Tenantless(), "", events, 0)
		if err != nil || len(rows) == 0 || rows[0].First != events[0].Seq {
			t.Fatalf("packed again: %v, %v", rows, err)
		}
	})
}
