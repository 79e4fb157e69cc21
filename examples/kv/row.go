package kv

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"go.etcd.io/bbolt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// row is a run as it is stored: what a list shows, the claim, and the document's bytes. Instants
// are microseconds.
type row struct {
	ID         string          `json:"id"`
	Tenant     string          `json:"tenant,omitempty"`
	Graph      graph.Ref       `json:"graph"`
	Status     run.Status      `json:"status"`
	Seq        int64           `json:"seq"`
	Type       checkpoint.Type `json:"type"`
	Commit     checkpoint.ID   `json:"commit"`
	StartedAt  *int64          `json:"started_at"`
	UpdatedAt  *int64          `json:"updated_at"`
	FinishedAt *int64          `json:"finished_at,omitempty"`
	Wake       *int64          `json:"wake,omitempty"`
	Token      string          `json:"token,omitempty"`
	ClaimedAt  *int64          `json:"claimed_at,omitempty"`
	Attempts   int             `json:"attempts,omitempty"`
	Abandons   int             `json:"abandons,omitempty"`
	PoisonedAt *int64          `json:"poisoned_at,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Document   []byte          `json:"document"`
}

func micros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

func instant(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us).UTC()
}

func (r *row) owner() backend.Owner { return ownerOf(r.Tenant) }

func ownerOf(tenant string) backend.Owner {
	if tenant == "" {
		return backend.Tenantless()
	}
	return backend.Tenant(tenant)
}

func tenantOf(o backend.Owner) string {
	tenant, _ := o.Tenant()
	return tenant
}

// state is the claim of the run.
func (r *row) state() claim.State {
	return claim.State{
		Wake: instant(r.Wake), Token: claim.Token(r.Token), ClaimedAt: instant(r.ClaimedAt), Attempts: r.Attempts, Abandons: r.Abandons,
		Poison: claim.Poison{At: instant(r.PoisonedAt), Reason: r.Reason},
	}
}

func (r *row) setState(s claim.State) {
	r.Wake, r.Token, r.ClaimedAt = micros(s.Wake), string(s.Token), micros(s.ClaimedAt)
	r.Attempts, r.Abandons, r.PoisonedAt, r.Reason = s.Attempts, s.Abandons, micros(s.Poison.At), s.Poison.Reason
}

func (r *row) document() (*run.Document, error) {
	d, err := run.Decode(r.Document)
	if err != nil {
		return nil, &backend.CorruptError{Run: r.ID, What: "document", Err: err}
	}
	return d, nil
}

// ordered is a number as bytes in the order of numbers.
func ordered(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)^1<<63) }

// key joins parts; none of the ids holds a NUL.
func key(parts ...string) []byte {
	var k []byte
	for _, p := range parts {
		k = append(append(k, p...), 0)
	}
	return k
}

// startedKey is where a run stands in lists.
func startedKey(startedAt int64, id string) []byte { return append(ordered(startedAt), id...) }

// dueKey is where a run stands among those that may be claimed, nil when it does not.
func (r *row) dueKey() []byte {
	switch {
	case r.Wake != nil:
		return append(append([]byte{byte(claim.Ready)}, ordered(*r.Wake)...), r.ID...)
	case r.ClaimedAt != nil:
		return append(append([]byte{byte(claim.Expired)}, ordered(*r.ClaimedAt)...), r.ID...)
	}
	return nil
}

// find reads a row, nil when there is none.
func (t *tx) find(id string) (*row, error) {
	raw := t.Bucket(runsBucket).Get([]byte(id))
	if raw == nil {
		return nil, nil
	}
	r := &row{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, &backend.CorruptError{Run: id, What: "row", Err: err}
	}
	return r, nil
}

// visible reads the row of a run that the scope sees.
func (t *tx) visible(s backend.Scope, id string) (*row, error) {
	r, err := t.find(id)
	if err == nil && (r == nil || !s.Sees(r.owner())) {
		err = backend.ErrNotFound
	}
	return r, err
}

// change stores what edit makes of a row, and its place among those that are due.
func (t *tx) change(r *row, edit func()) error {
	due := t.Bucket(dueBucket)
	if k := r.dueKey(); k != nil {
		if err := due.Delete(k); err != nil {
			return err
		}
	}
	edit()
	if k := r.dueKey(); k != nil {
		if err := due.Put(k, []byte{}); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return t.Bucket(runsBucket).Put([]byte(r.ID), raw)
}

// put stores what a commit makes of a row.
func (t *tx) put(r *row, p backend.ApartProposal) error {
	d := p.Document
	raw, err := run.Encode(d)
	if err != nil {
		return err
	}
	if err := t.Bucket(startedBucket).Put(startedKey(d.StartedAt.UnixMicro(), d.ID), []byte{}); err != nil {
		return err
	}
	return t.change(r, func() {
		r.ID, r.Graph, r.Status, r.Seq, r.Type, r.Commit, r.Document = d.ID, d.Graph, d.Status, d.Seq, p.Type, p.CheckpointID, raw
		r.StartedAt, r.UpdatedAt, r.FinishedAt = micros(d.StartedAt), micros(d.UpdatedAt), micros(d.FinishedAt)
		r.setState(p.Schedule.Apply(r.state(), t.or(p.Now)))
	})
}

// tx is one transaction, and both stores in it.
type tx struct {
	*bbolt.Tx
	now time.Time
}

// or is the given instant, or the store's.
func (t *tx) or(now time.Time) time.Time {
	if now.IsZero() {
		return t.now
	}
	return now
}
