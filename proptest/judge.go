package proptest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// judge holds C1 to C12 against what a store answers and shows, and knows nothing of the
// model: what both miss must be wrong in two independent ways.
type judge struct {
	// committed are the sequences of each run that a call reported as committed.
	committed map[string]map[int64]bool
	// void are the tokens that hold nothing any more, and why; held is the token that the
	// last lease of each run carries.
	void map[claim.Token]string
	held map[string]claim.Token
	// launches and abandons count, for each run, since its last commit or recovery.
	launches map[string]int
	abandons map[string]int

	// grown is by how much the step may have moved each run's sequence.
	grown map[string]int64
	// freed are runs that the step may have taken out of poison, or deleted.
	freed, deleted map[string]bool
	verdicts       []string
}

func newJudge() *judge {
	return &judge{
		committed: map[string]map[int64]bool{}, void: map[claim.Token]string{}, held: map[string]claim.Token{},
		launches: map[string]int{}, abandons: map[string]int{},
	}
}

// begin begins a step.
func (j *judge) begin() {
	j.grown, j.freed, j.deleted, j.verdicts = map[string]int64{}, map[string]bool{}, map[string]bool{}, nil
}

func (j *judge) rule(clause, format string, args ...any) {
	j.verdicts = append(j.verdicts, clause+": "+fmt.Sprintf(format, args...))
}

// alive holds C2 against a call that a token brought about.
func (j *judge) alive(token claim.Token, did string) {
	if why, dead := j.void[token]; dead {
		j.rule("C2", "a token that was %s %s", why, did)
	}
}

// end voids the token that holds a run.
func (j *judge) end(id, why string) {
	if token := j.held[id]; token != "" {
		j.void[token] = why
		delete(j.held, id)
	}
}

// overhear takes over from the model what a call did whose answer nobody heard.
func (j *judge) overhear(m *model) {
	for id, r := range m.runs {
		j.launches[id], j.abandons[id] = r.attempts, r.abandons
		if j.held[id] != r.token {
			j.end(id, "ended by a call without an answer")
		}
	}
}

// excuse takes over from the model what the last call did to the runs without saying so.
func (j *judge) excuse(before, after *model) {
	for id, r := range after.runs {
		was := before.runs[id]
		if j.committed[id] == nil {
			j.committed[id] = map[int64]bool{}
		}
		if was == nil {
			j.committed[id][r.document.Seq] = true
			continue
		}
		if grew := r.document.Seq - was.document.Seq; grew > 0 {
			j.grown[id] += grew
			j.committed[id][r.document.Seq] = true
		}
		if was.poisonFor != "" && r.poisonFor == "" {
			j.freed[id] = true
		}
	}
	j.overhear(after)
}

// leased notes a lease.
func (j *judge) leased(l claim.Lease, maxAttempts int) {
	if _, dead := j.void[l.Token]; dead || j.isHeld(l.Token) {
		j.rule("A7", "the token of a new lease of %s was issued before", l.Run)
	}
	j.end(l.Run, "replaced")
	j.held[l.Run] = l.Token
	j.launches[l.Run]++
	if n := j.launches[l.Run]; n > maxAttempts {
		j.rule("C5", "%s is launched %d times in a row under a maximum of %d", l.Run, n, maxAttempts)
	}
}

func (j *judge) isHeld(token claim.Token) bool {
	for _, t := range j.held {
		if t == token {
			return true
		}
	}
	return false
}

// wrote notes a commit or a mutation that was reported as done, and not as replayed.
func (j *judge) wrote(id string, seq int64, releases bool) {
	if j.committed[id] == nil {
		j.committed[id] = map[int64]bool{}
	}
	if j.committed[id][seq] {
		j.rule("C1", "two commits of %s succeeded at sequence %d", id, seq)
	}
	j.committed[id][seq] = true
	j.grown[id]++
	j.launches[id], j.abandons[id] = 0, 0
	j.freed[id] = true
	if releases {
		j.end(id, "ended by a commit")
	}
}

// gaveBack notes that an attempt was handed back: an accepted abandon, a refund.
func (j *judge) gaveBack(id string) {
	if j.launches[id] > 0 {
		j.launches[id]--
	}
}

// abandoned notes an abandon that was accepted.
func (j *judge) abandoned(id string, d claim.Disposition, p claim.AbandonPolicy) {
	j.gaveBack(id)
	j.end(id, "abandoned")
	if d == claim.Rescheduled {
		j.abandons[id]++
		if !p.NeverPoison && j.abandons[id] > p.MaxAbandons {
			j.rule("C6", "%s is abandoned %d times in a row under a maximum of %d", id, j.abandons[id], p.MaxAbandons)
		}
	}
}

// recovered notes a recovery that was reported as done.
func (j *judge) recovered(id string, was backend.Info) {
	if was.Poison.Reason != "" {
		j.launches[id], j.abandons[id] = 0, 0
		j.freed[id] = true
	}
}

// served holds C12 against a batch, given what the store showed before it.
func (j *judge) served(before picture, p claim.Policy, taken []string) {
	if p.Limit < 2 || p.OwnerCap > 0 {
		return
	}
	var due, got [2]bool
	took := map[string]bool{}
	for _, id := range taken {
		took[id] = true
	}
	for id, i := range before.Infos {
		if i.Document.Status != run.Running || !i.Poison.At.IsZero() || !admits(p.Filter, id, i.Document) {
			continue
		}
		class := -1
		switch {
		case !i.Wake.IsZero() && !i.Wake.After(p.Now):
			class = 0
		case !i.ClaimedAt.IsZero() && i.ClaimedAt.Before(p.Now.Add(-p.TTL)):
			class = 1
		}
		if class >= 0 {
			due[class] = true
			got[class] = got[class] || took[id]
		}
	}
	for class, name := range []string{"ready", "expired"} {
		if due[class] && !got[class] {
			j.rule("C12", "a batch of up to %d has no outcome of the %s runs", p.Limit, name)
		}
	}
}

// judges holds the rules about states against two looks at the store.
func (j *judge) judges(before, after picture) []string {
	for id, now := range after.Infos {
		was, existed := before.Infos[id]
		j.shape(id, now)
		j.together(id, now, after.Events[id])
		if !existed {
			continue
		}
		if grew := now.Document.Seq - was.Document.Seq; grew != j.grown[id] {
			j.rule("C3", "the sequence of %s grew by %d, and %d commits were reported", id, grew, j.grown[id])
		}
		if !was.Poison.At.IsZero() && now.Poison.At.IsZero() && !j.freed[id] {
			j.rule("C7", "%s left poison without a recovery or a mutation", id)
		}
		if isTerminal(was.Document.Status) && !reflect.DeepEqual(columnsOf(was), columnsOf(now)) || isTerminal(was.Document.Status) && now.Document.Seq != was.Document.Seq {
			j.rule("C8", "%s changed after its end", id)
		}
		if was.Owner != now.Owner {
			j.rule("A8", "the owner of %s changed", id)
		}
	}
	for id := range before.Infos {
		if _, still := after.Infos[id]; !still && !j.deleted[id] {
			j.rule("C8", "%s disappeared", id)
		}
	}
	return j.verdicts
}

// monotone holds C11 against a call that neither ended nor replaced the token.
func (j *judge) monotone(before, after picture, heldBefore map[string]claim.Token) {
	for id, token := range heldBefore {
		if j.held[id] != token {
			continue
		}
		if was, now := before.Infos[id].ClaimedAt, after.Infos[id].ClaimedAt; !now.IsZero() && now.Before(was) {
			j.rule("C11", "the claimed-at of %s went back from %s to %s under the same token", id, was.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
		}
	}
}

// shape holds C4 and the rest of S1.
func (j *judge) shape(id string, i backend.Info) {
	wake, claimed, poisoned := !i.Wake.IsZero(), !i.ClaimedAt.IsZero(), !i.Poison.At.IsZero()
	n := 0
	for _, is := range []bool{wake, claimed, poisoned} {
		if is {
			n++
		}
	}
	want := 0
	if i.Document.Status == run.Running {
		want = 1
	}
	if n != want {
		j.rule("C4", "%s is %s, with wake %v, claim %v, poison %v", id, i.Document.Status, wake, claimed, poisoned)
	}
	if poisoned != (i.Poison.Reason != "") || i.Attempts < 0 || i.Abandons < 0 ||
		isTerminal(i.Document.Status) == i.Document.FinishedAt.IsZero() {
		j.rule("S1", "%s has the poison %v, %d attempts, %d abandons and the finish instant %v", id, i.Poison, i.Attempts, i.Abandons, i.Document.FinishedAt)
	}
}

// together holds C9: the document, the type and the last event are of one transition.
func (j *judge) together(id string, i backend.Info, events []run.Event) {
	if len(events) == 0 {
		j.rule("C9", "%s has no events", id)
		return
	}
	last := events[len(events)-1]
	if last.Seq != i.Document.EventSeq || last.Commit != i.Document.Seq || last.Checkpoint != i.Type {
		j.rule("C9", "%s is at sequence %d, event %d, by %s; its last event is %d, which closes sequence %d, by %s",
			id, i.Document.Seq, i.Document.EventSeq, i.Type, last.Seq, last.Commit, last.Checkpoint)
	}
}

// forget notes that a run was deleted; a run of the same id would be another one.
func (j *judge) forget(id string) {
	j.end(id, "deleted")
	delete(j.committed, id)
	delete(j.launches, id)
	delete(j.abandons, id)
}
