package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Opener opens what is sealed for one audit, and counts what it cannot open.
type Opener struct {
	Sealer Sealer

	documents, events int
	keys              []string
}

// Findings is what could not be looked into, as one finding of the whole audit, or none.
func (o *Opener) Findings() []Finding {
	if o.documents+o.events == 0 {
		return nil
	}
	slices.Sort(o.keys)
	return []Finding{NewFinding("I2.sealed", fmt.Sprintf("%d documents and %d events are sealed and do not open here (keys %q): only what is beside them was checked",
		o.documents, o.events, o.keys))}
}

// document is a document for the audit; it is not there when it was counted.
func (o *Opener) document(at Place, stored []byte) (plain []byte, there bool, err error) {
	plain, err = open(o.sealer(), at, stored)
	if there, err = o.counted(at, 1, err); err != nil || !there {
		plain = nil
	}
	return plain, there, err
}

// row is a row of events for the audit; it is not there when its events were counted.
func (o *Opener) row(at Place, stored []byte) (r packedRow, there bool, err error) {
	r, err = openRow(o.sealer(), at, stored)
	n := 1
	if first, _, wrong := rowHead(at.Seq, stored); wrong == nil {
		n = int(at.Seq - first + 1)
	}
	there, err = o.counted(at, n, err)
	return r, there, err
}

func (o *Opener) sealer() Sealer {
	if o == nil {
		return nil
	}
	return o.Sealer
}

// counted is what opening n payloads answered, for the audit: what cannot be opened is counted and
// not there, damage is there.
func (o *Opener) counted(at Place, n int, err error) (there bool, damage error) {
	if damage, ok := errors.AsType[*CorruptError](err); ok {
		return true, damage.Err
	}
	var key string
	if sealed, ok := errors.AsType[*SealedError](err); ok {
		key = sealed.Key
	} else if failed, ok := errors.AsType[*SealingError](err); ok {
		key = failed.Key
	} else {
		return true, err
	}
	if o == nil {
		return false, nil
	}
	if at.Payload == DocumentPayload {
		o.documents += n
	} else {
		o.events += n
	}
	if !slices.Contains(o.keys, key) {
		o.keys = append(o.keys, key)
	}
	return false, nil
}

// AuditRun checks one stored run against I2 to I11, the same way for every backend. p's
// Now is set.
func AuditRun(r StoredRun, p AuditPolicy) []Finding {
	a := &runAudit{r: r, p: p}
	a.document()
	a.graph()
	a.shape()
	a.claim()
	a.events()
	a.order()
	return a.findings
}

type runAudit struct {
	r        StoredRun
	p        AuditPolicy
	decoded  *run.Document
	findings []Finding
}

func (a *runAudit) found(check, format string, args ...any) {
	f := NewFinding(check, fmt.Sprintf(format, args...))
	f.Run = a.r.Run
	f.Tenant, _ = a.r.Owner.Tenant()
	a.findings = append(a.findings, f)
}

// document checks I2, I7, I8 and I10 as far as they are the document's.
func (a *runAudit) document() {
	if a.r.Document == nil {
		a.found("I2.missing", "there is a row and no document")
		return
	}
	raw, there, err := a.r.Opener.document(Place{Owner: a.r.Owner, Run: a.r.Run, Payload: DocumentPayload, Seq: a.r.Seq}, a.r.Document)
	switch {
	case err != nil:
		a.found("I2.document", "%v", err)
		return
	case !there:
		return
	}
	d, err := run.Decode(raw)
	switch {
	case errors.Is(err, run.ErrFormat):
		a.found("I2.format", "%v", err)
		return
	case err != nil:
		a.found(undecodable(raw), "%v", err)
		return
	}
	a.decoded = d
	switch {
	case d.ID != a.r.Run:
		a.found("I2.identity", "the document is run %s's", d.ID)
	case d.Graph != a.r.Graph:
		a.found("I2.identity", "the document names version %s of graph %s, the row version %s of graph %s", d.Graph.Hash, d.Graph.ID, a.r.Graph.Hash, a.r.Graph.ID)
	case !d.StartedAt.Equal(a.r.StartedAt):
		a.found("I2.identity", "the document started at %s, the row at %s", stamp(d.StartedAt), stamp(a.r.StartedAt))
	}
	if d.Seq != a.r.Seq {
		a.found("I2.sequence", "the document is at %d, the row at %d", d.Seq, a.r.Seq)
	}
	if d.Status != a.r.Status {
		a.found("I7.document", "the document is %s, the row %s", d.Status, a.r.Status)
	}
}

// undecodable names the check that a document fails which does not decode, by the parts of
// it that can be read all the same.
func undecodable(raw []byte) (check string) {
	var envelope struct {
		Run *struct {
			Status     run.Status `json:"status"`
			Tasks      []struct{ ID string }
			Timers     []struct{ Kind, Key string }
			Interrupts []struct {
				ID, Status string
				Deadline   *time.Time
			}
		} `json:"run"`
	}
	if json.Unmarshal(raw, &envelope) != nil || envelope.Run == nil {
		return "I2.document"
	}
	d := envelope.Run
	var want, got []string
	open := 0
	for _, t := range d.Tasks {
		want = append(want, string(run.TimerTask)+" "+t.ID)
	}
	for _, in := range d.Interrupts {
		if run.InterruptStatus(in.Status) != run.InterruptOpen {
			continue
		}
		open++
		if in.Deadline != nil {
			want = append(want, string(run.TimerInterrupt)+" "+in.ID)
		}
	}
	for _, t := range d.Timers {
		got = append(got, t.Kind+" "+t.Key)
	}
	if d.Status.Terminal() && len(d.Tasks)+len(d.Timers)+open > 0 {
		return "I10.document"
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return "I8.timers"
	}
	return "I2.document"
}

func (a *runAudit) graph() {
	if !a.r.GraphStored {
		a.found("I3.missing", "version %s of graph %s", a.r.Graph.Hash, a.r.Graph.ID)
	}
}

// shape checks I4, I8, I9 and I10 as far as they are the row's.
func (a *runAudit) shape() {
	st := a.r.State
	if st.Attempts < 0 || st.Abandons < 0 {
		a.found("I9.counters", "%d attempts, %d abandons", st.Attempts, st.Abandons)
		st.Attempts, st.Abandons = max(st.Attempts, 0), max(st.Abandons, 0)
	}
	if a.p.MaxAttempts > 0 && st.Attempts > a.p.MaxAttempts {
		a.found("I9.attempts", "%d attempts, the budget is %d", st.Attempts, a.p.MaxAttempts)
	}
	if a.p.MaxAbandons > 0 && st.Abandons > a.p.MaxAbandons {
		a.found("I9.abandons", "%d abandons, the budget is %d", st.Abandons, a.p.MaxAbandons)
	}
	terminal := a.r.Status.Terminal()
	idle := st.Wake.IsZero() && st.Token == "" && st.ClaimedAt.IsZero() && st.Poison == claim.Poison{}
	switch {
	case terminal && !idle:
		a.found("I10.row", "the run is %s and has %s", a.r.Status, holdings(st))
	case a.r.Status == run.Running && idle:
		a.found("I8.wake", "the run is running and has nothing that would ever wake it")
	case !a.r.Status.Storable():
		a.found("I4.shape", "the status is %q", a.r.Status)
	default:
		if err := st.Valid(a.r.Status == run.Running); err != nil {
			a.found("I4.shape", "the run is %s and has %s: %v", a.r.Status, holdings(st), err)
		}
	}
	if terminal == a.r.FinishedAt.IsZero() {
		a.found("I4.shape", "the run is %s and its finish instant is %s", a.r.Status, stamp(a.r.FinishedAt))
	}
}

// holdings tells what of claim, wake and poison is there, and never the token.
func holdings(st claim.State) string {
	text := ""
	for _, part := range []struct {
		there bool
		name  string
	}{
		{!st.Wake.IsZero(), "wake"},
		{st.Token != "", "token"},
		{!st.ClaimedAt.IsZero(), "claimed-at"},
		{!st.Poison.At.IsZero(), "poison instant"},
		{st.Poison.Reason != "", "poison reason"},
	} {
		if part.there {
			if text != "" {
				text += ", "
			}
			text += part.name
		}
	}
	if text == "" {
		return "nothing"
	}
	return text
}

func (a *runAudit) claim() {
	at := a.r.State.ClaimedAt
	if a.p.MaxClaimAge > 0 && !at.IsZero() && at.Before(a.p.Now.Add(-a.p.MaxClaimAge)) {
		a.found("I5.claim", "claimed at %s, %s before now", stamp(at), a.p.Now.Sub(at))
	}
}

// events checks I6, and I2 and I7 as far as they are the events'.
func (a *runAudit) events() {
	var first, last, gaps int64
	var closing *run.Event
	var closingID string
	var end run.Status
	bad := false // or not to be opened: what the others say may be what this one would have said
	for stored := range a.r.Events {
		begins, _, err := rowHead(stored.Seq, stored.Body)
		switch {
		case err != nil: // below
			begins = last + 1
		case last != 0 && begins <= last:
			a.found("I6.event", "event %d is stored twice: the row of event %d begins with it", begins, stored.Seq)
			last, bad = stored.Seq, true
			continue
		case last != 0 && begins != last+1:
			if gaps == 0 {
				a.found("I6.gap", "event %d follows event %d", begins, last)
			}
			gaps++
		}
		if last = stored.Seq; first == 0 {
			first = begins
		}
		r, there, err := a.r.Opener.row(Place{Owner: a.r.Owner, Run: a.r.Run, Payload: EventPayload, Seq: stored.Seq}, stored.Body)
		if !there {
			bad = true
			continue
		}
		if err != nil {
			a.found("I6.event", "event %d: %v", stored.Seq, err)
			bad = true
			continue
		}
		r.each(func(seq int64, content []byte, err error) bool {
			var e run.Event
			if err == nil {
				e, err = eventOf(a.r.Run, seq, content)
			}
			if err != nil {
				a.found("I6.event", "event %d: %v", seq, err)
				bad = true
				return false
			}
			switch e.Type {
			case run.EventCheckpointCommitted:
				closing, closingID = &e, string(stored.CheckpointID)
			case run.EventRunCompleted:
				end = run.Done
			case run.EventRunFailed:
				end = run.Failed
			case run.EventRunCancelled:
				end = run.Cancelled
			}
			return true
		})
	}
	if bad {
		return
	}
	switch {
	case last == 0:
	case closing == nil:
		a.found("I2.checkpoint", "there are events, and no checkpoint event among them")
	case closing.Commit != a.r.Seq:
		a.found("I2.checkpoint", "the last checkpoint event is of sequence %d, the row is at %d", closing.Commit, a.r.Seq)
	case closingID != string(a.r.CheckpointID):
		a.found("I2.checkpoint", "the last checkpoint event is of commit %s, the row of %s", closingID, a.r.CheckpointID)
	}
	if a.decoded != nil && last > a.decoded.EventSeq {
		a.found("I6.beyond", "event %d, the document knows %d", last, a.decoded.EventSeq)
	}
	// Where retention has taken the older events, the end may have been among them.
	toldOf := end != "" || a.r.Status.Terminal() && first == 1
	if toldOf && end != a.r.Status {
		a.found("I7.event", "the events end %s, the row is %s", orNone(string(end)), a.r.Status)
	}
}

func orNone(s string) string {
	if s == "" {
		return "with no end"
	}
	return s
}

func (a *runAudit) order() {
	r := a.r
	switch {
	case r.UpdatedAt.Before(r.StartedAt):
		a.found("I11.order", "updated at %s, started at %s", stamp(r.UpdatedAt), stamp(r.StartedAt))
	case !r.FinishedAt.IsZero() && r.FinishedAt.Before(r.StartedAt):
		a.found("I11.order", "finished at %s, started at %s", stamp(r.FinishedAt), stamp(r.StartedAt))
	}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
