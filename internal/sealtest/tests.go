package sealtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// markers are the values of the orders, which must not be readable.
var markers = []string{"marker-input", "marker-answer", "marker-output", "marker-failure", "marker-metadata", "marker-refuse"}

// readable is what stays so.
var readable = []string{"good", "key-good", "approve", "charge", "run_completed"}

func nothingIsReadable(t *testing.T, d Data) {
	s := d.Open(t, keys(t, "k1", "k1", "k2"))
	orders(t, s)
	dump := d.Dump(t)
	for _, text := range markers {
		if bytes.Contains(dump, []byte(text)) {
			t.Errorf("%q is readable where it is stored", text)
		}
	}
	for _, text := range readable {
		if !bytes.Contains(dump, []byte(text)) {
			t.Errorf("%q is not readable where it is stored", text)
		}
	}
	// What looks for them finds them, where nothing is sealed.
	plain := d.Open(t, nil)
	e, published := engine(t, plain)
	for _, text := range markers {
		_, err := e.Start(t.Context(), published, map[string]string{"name": text}, belay.StartOptions{ID: "plain " + text})
		must(t, err)
	}
	dump = d.Dump(t)
	for _, text := range markers {
		if !bytes.Contains(dump, []byte(text)) {
			t.Errorf("%q is not found in the plain rows: nothing was looked at", text)
		}
	}
}

func whatWasChangedDoesNotOpen(t *testing.T, d Data) {
	s := d.Open(t, Keys(t, "k1"))
	a, token := insert(t, s, tenantless, "a")
	insert(t, s, acme, "b")
	first := d.Document(t, "a")
	_, err := s.Commit(t.Context(), backend.System(), step(a, token))
	must(t, err)

	document := d.Document(t, "a")
	event, digest := d.Event(t, "a", 1)
	second, _ := d.Event(t, "a", 2)
	others, _ := d.Event(t, "b", 1)
	flipped := func(stored []byte, at int) []byte {
		if at < 0 {
			at += len(stored)
		}
		changed := bytes.Clone(stored)
		changed[at] ^= 1
		return changed
	}
	const head = len("\x00belay\x01\x02k1")
	documents := map[string][]byte{
		"of another run": d.Document(t, "b"), "of an earlier checkpoint": first, "an event": event, "empty": {},
		"cut off in its envelope": document[:7], "cut off behind it": document[:head], "cut off": document[:len(document)-1],
		"flipped in its magic": flipped(document, 0), "flipped in its nonce": flipped(document, head),
		"flipped in the middle": flipped(document, len(document)/2), "flipped at its end": flipped(document, -1),
		"longer": append(bytes.Clone(document), 0),
	}
	for name, stored := range documents {
		d.WriteDocument(t, "a", stored)
		_, err := s.FetchRun(t.Context(), backend.System(), "a")
		wantCorrupt(t, "a document "+name, err, "a", "document")
		_, err = s.InspectRun(t.Context(), backend.Of(tenantless), "a")
		wantCorrupt(t, "inspecting a document "+name, err, "a", "document")
		_, err = s.MutateRun(t.Context(), backend.System(), "a", "m", func(*run.Document) (backend.Mutation, error) {
			t.Errorf("a document %s: a mutation's function is called", name)
			return backend.Mutation{}, nil
		})
		wantCorrupt(t, "mutating a document "+name, err, "a", "document")
		batch, err := s.Features().ClaimDocuments.ClaimDueDocuments(t.Context(), claim.Policy{
			Now: began.Add(time.Hour), TTL: time.Minute, Limit: 10, MaxAttempts: 1000,
		})
		must(t, err)
		if len(batch.Leases) != 2 {
			t.Fatalf("%d leases", len(batch.Leases))
		}
		for i, l := range batch.Leases {
			if l.Run == "a" {
				wantCorrupt(t, "claiming a document "+name, batch.Documents[i].Err, "a", "document")
			} else if batch.Documents[i].Err != nil {
				t.Errorf("a document %s spoils another's entry: %v", name, batch.Documents[i].Err)
			}
			must(t, s.ReleaseClaim(t.Context(), l.Run, l.Token, claim.ReleasePolicy{Now: began, Refund: true}))
		}
	}
	d.WriteDocument(t, "a", document)
	events := map[string][]byte{
		"of another run": others, "of another sequence": second, "a document": document, "cut off": event[:len(event)-1],
		"flipped in its magic": flipped(event, 3), "flipped at its end": flipped(event, -1), "empty": {},
	}
	for name, stored := range events {
		d.WriteEvent(t, "a", 1, stored, digest)
		_, err := s.FetchEvent(t.Context(), backend.System(), "a", 1)
		wantCorrupt(t, "an event "+name, err, "a", "event 1")
		_, err = s.ListEvents(t.Context(), backend.System(), "a", backend.EventQuery{Limit: 10})
		wantCorrupt(t, "listing an event "+name, err, "a", "event 1")
		if _, err := s.FetchEvent(t.Context(), backend.System(), "a", 2); err != nil {
			t.Errorf("an event %s spoils another: %v", name, err)
		}
		found := audit(t, s)
		if len(found) != 1 || found[0].Check != "I6.event" || found[0].Run != "a" {
			t.Errorf("an event %s: the audit finds %+v", name, found)
		}
	}
	d.WriteEvent(t, "a", 1, event, digest)
	if found := audit(t, s); len(found) != 0 {
		t.Errorf("put back: %+v", found)
	}
}

func wantCorrupt(t *testing.T, what string, err error, id, part string) {
	t.Helper()
	c, ok := errors.AsType[*backend.CorruptError](err)
	if !ok || c.Run != id || c.What != part || errors.Is(err, backend.ErrSealed) || backend.Classify(err) != backend.Permanent {
		t.Errorf("%s answers %v; it must answer that the %s of run %s is corrupt", what, err, part, id)
	}
}

func wantSealed(t *testing.T, what string, err error, part, key string) {
	t.Helper()
	s, ok := errors.AsType[*backend.SealedError](err)
	if !ok || s.What != part || s.Key != key || errors.Is(err, backend.ErrCorrupt) || backend.Classify(err) != backend.Permanent {
		t.Errorf("%s answers %v; it must answer that the %s is sealed with the key %q", what, err, part, key)
	}
}

func audit(t *testing.T, s backend.Store) (found []backend.Finding) {
	t.Helper()
	for f, err := range s.Features().Audit.Audit(t.Context(), backend.AuditPolicy{Now: began}) {
		must(t, err)
		found = append(found, f)
	}
	return found
}

func keysRotate(t *testing.T, d Data) {
	doc, token := insert(t, d.Open(t, Keys(t, "k1")), acme, "a")
	event, digest := d.Event(t, "a", 1)
	both := d.Open(t, keys(t, "k2", "k1", "k2"))
	c := step(doc, token)
	_, err := both.Commit(t.Context(), backend.System(), c)
	must(t, err)
	if again, err := both.Commit(t.Context(), backend.System(), c); err != nil || !again.Replayed {
		t.Errorf("sent again, sealed anew: %+v, %v", again, err)
	}
	if now, then := d.Event(t, "a", 1); !bytes.Equal(now, event) || !bytes.Equal(then, digest) {
		t.Error("a stored event has changed")
	}
	for key, part := range map[string]string{"k2": "document", "k1": "event 1"} {
		stored := d.Document(t, "a")
		if part != "document" {
			stored, _ = d.Event(t, "a", 1)
		}
		if !bytes.HasPrefix(stored, []byte("\x00belay\x01\x02"+key)) {
			t.Errorf("the %s is not under %s", part, key)
		}
	}
	if got, err := both.FetchRun(t.Context(), backend.System(), "a"); err != nil || got.Seq != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if page, err := both.ListEvents(t.Context(), backend.Of(acme), "a", backend.EventQuery{Limit: 10}); err != nil || len(page.Events) != 3 {
		t.Errorf("%+v, %v", page, err)
	}
	next := d.Open(t, Keys(t, "k2"))
	if _, err := next.FetchRun(t.Context(), backend.System(), "a"); err != nil {
		t.Error(err)
	}
	_, err = next.ListEvents(t.Context(), backend.System(), "a", backend.EventQuery{Limit: 10})
	wantSealed(t, "a list of events under a key that was taken away", err, "event 1", "k1")
	old := d.Open(t, Keys(t, "k1"))
	_, err = old.FetchRun(t.Context(), backend.System(), "a")
	wantSealed(t, "a document under a key that is new", err, "document", "k2")
	_, err = old.MutateRun(t.Context(), backend.System(), "a", "m", func(*run.Document) (backend.Mutation, error) { return backend.Mutation{}, nil })
	wantSealed(t, "a mutation under a key that is new", err, "document", "k2")
	if found := audit(t, both); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	if found := audit(t, next); len(found) != 1 || found[0].Check != "I2.sealed" || !strings.Contains(found[0].Detail, `0 documents and 2 events`) || !strings.Contains(found[0].Detail, `["k1"]`) {
		t.Errorf("%+v", found)
	}
}

func plainAndSealed(t *testing.T, d Data) {
	plain := d.Open(t, nil)
	doc, token := insert(t, plain, tenantless, "a")
	reading := d.Open(t, keys(t, "", "k1"))
	if got, err := reading.FetchRun(t.Context(), backend.System(), "a"); err != nil || got.ID != "a" {
		t.Errorf("a plain document, to a store that opens: %v", err)
	}
	sealing := d.Open(t, Keys(t, "k1"))
	c := step(doc, token)
	_, err := sealing.Commit(t.Context(), backend.System(), c)
	must(t, err)
	for _, s := range []backend.Store{reading, sealing} {
		if page, err := s.ListEvents(t.Context(), backend.System(), "a", backend.EventQuery{Limit: 10}); err != nil || len(page.Events) != 3 {
			t.Errorf("%+v, %v", page, err)
		}
		if found := audit(t, s); len(found) != 0 {
			t.Errorf("%+v", found)
		}
	}
	_, err = plain.FetchRun(t.Context(), backend.System(), "a")
	wantSealed(t, "a sealed document, to a store without a Sealer", err, "document", "k1")
	if e, err := plain.FetchEvent(t.Context(), backend.System(), "a", 1); err != nil || e.Seq != 1 {
		t.Errorf("an event from before: %v", err)
	}
	_, err = plain.LatestEvent(t.Context(), backend.System(), "a")
	wantSealed(t, "a sealed event, to a store without a Sealer", err, "event 3", "k1")
	if page, err := plain.ListRuns(t.Context(), backend.System(), backend.Query{Limit: 10}); err != nil || len(page.Runs) != 1 || page.Runs[0].Seq != 2 {
		t.Errorf("a list: %+v, %v", page, err)
	}
	// A store that opens and does not seal writes plain again.
	_, err = reading.Commit(t.Context(), backend.Of(tenantless), step(c.Document, token))
	must(t, err)
	if got, err := plain.FetchRun(t.Context(), backend.System(), "a"); err != nil || got.Seq != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if found := audit(t, plain); len(found) != 1 || found[0].Check != "I2.sealed" || !strings.Contains(found[0].Detail, "0 documents and 1 events") {
		t.Errorf("%+v", found)
	}
}

func equalEvents(t *testing.T, d Data) {
	stores := map[string]backend.Store{
		"plain": d.Open(t, nil), "k1": d.Open(t, Keys(t, "k1")), "k1 and k2": d.Open(t, keys(t, "k1", "k1", "k2")),
		"k2": d.Open(t, Keys(t, "k2")), "k2 and k1": d.Open(t, keys(t, "k2", "k2", "k1")), "opens": d.Open(t, keys(t, "", "k1", "k2")),
	}
	names := []string{"plain", "k1", "k1 and k2", "k2", "k2 and k1", "opens"}
	for _, stored := range names {
		for _, sent := range names {
			for _, digest := range []bool{true, false} {
				id := fmt.Sprintf("%s, %s, %v", stored, sent, digest)
				doc, token := insert(t, stores[stored], acme, id)
				if !digest {
					body, _ := d.Event(t, id, 1)
					d.WriteEvent(t, id, 1, body, nil)
				}
				key := map[string]string{"k1": "k1", "k1 and k2": "k1", "k2": "k2", "k2 and k1": "k2"}[stored]
				opens := key == "" || sent == "opens" || strings.Contains(sent, key)
				c := step(doc, token, run.Event{Run: id, Seq: 1, Type: run.EventRunInitialized, At: began.Add(time.Second)})
				_, err := stores[sent].Commit(t.Context(), backend.System(), c)
				switch {
				case !opens:
					wantSealed(t, id+": another event", err, "event 1", key)
				case !errors.Is(err, backend.ErrEventConflict):
					t.Errorf("%s: another event answers %v", id, err)
				}
				c = step(doc, token, run.Event{Run: id, Seq: 1, Type: run.EventRunInitialized, At: began}, closing(id, 2, 1, checkpoint.RunInitialized))
				_, err = stores[sent].Commit(t.Context(), backend.System(), c)
				switch {
				case !opens:
					wantSealed(t, id+": the same event", err, "event 1", key)
				case err != nil:
					t.Errorf("%s: the same event answers %v", id, err)
				default:
					if latest, err := stores[sent].LatestEvent(t.Context(), backend.System(), id); err != nil || latest.Seq != 3 {
						t.Errorf("%s: the latest event is %+v, %v", id, latest, err)
					}
				}
			}
		}
	}
	// The same of a mutation.
	doc, _ := insert(t, stores["k1"], acme, "mutated")
	c := step(doc, "", run.Event{Run: "mutated", Seq: 1, Type: run.EventRunInitialized, At: began})
	c.Schedule.Kind = checkpoint.ReleaseNow
	done, err := stores["k2 and k1"].MutateRun(t.Context(), backend.System(), "mutated", "m", func(*run.Document) (backend.Mutation, error) {
		return backend.Mutation{Proposal: &c.Proposal}, nil
	})
	if err != nil || !done.Committed {
		t.Errorf("a mutation: %+v, %v", done, err)
	}
}

// failing is a Sealer one of whose methods fails.
type failing struct {
	backend.Sealer
	op   string
	fail func() ([]byte, error)
}

func (f *failing) Key() string {
	if f.op == "key" {
		if b, err := f.fail(); err == nil {
			return string(b)
		}
	}
	return f.Sealer.Key()
}

func (f *failing) Seal(key string, at backend.Place, plain []byte) ([]byte, error) {
	if f.op == "seal" {
		return f.fail()
	}
	return f.Sealer.Seal(key, at, plain)
}

func (f *failing) Open(key string, at backend.Place, sealed []byte) ([]byte, error) {
	if f.op == "open" {
		return f.fail()
	}
	return f.Sealer.Open(key, at, sealed)
}

func (f *failing) Digest(key string, at backend.Place, plain []byte) ([]byte, error) {
	if f.op == "digest" {
		return f.fail()
	}
	return f.Sealer.Digest(key, at, plain)
}

var errSealer = errors.New("the sealer is out of order")

func failingSealers(t *testing.T, d Data) {
	f := &failing{Sealer: Keys(t, "k1")}
	s := d.Open(t, f)
	doc, token := insert(t, s, tenantless, "a")
	before := d.Document(t, "a")
	panics := func() ([]byte, error) { panic("a secret of the run") }
	crashes := func() ([]byte, error) { return before[len(before)+len(token):], nil }
	fails := func() ([]byte, error) { return nil, errSealer }
	answers := func(n int) func() ([]byte, error) {
		return func() ([]byte, error) { return bytes.Repeat([]byte("x"), n), nil }
	}
	for i, c := range []struct {
		op   string
		fail func() ([]byte, error)
	}{
		{"key", panics},
		{"key", answers(256)},
		{"seal", panics},
		{"seal", crashes},
		{"seal", fails},
		{"seal", answers(0)},
		{"seal", answers(1 << 20)},
		{"digest", panics},
		{"digest", fails},
		{"digest", answers(0)},
		{"digest", answers(65)},
	} {
		f.op, f.fail = c.op, c.fail
		_, err := s.Commit(t.Context(), backend.System(), step(doc, token))
		wantSealing(t, fmt.Sprintf("%d: a commit whose %s fails", i, c.op), err)
		in := draft("new")
		_, err = s.InsertRun(t.Context(), tenantless, in)
		wantSealing(t, fmt.Sprintf("%d: an insert whose %s fails", i, c.op), err)
		f.op = ""
		if !bytes.Equal(d.Document(t, "a"), before) {
			t.Fatalf("%d: something was stored", i)
		}
		if _, err := s.FetchRun(t.Context(), backend.System(), "new"); !errors.Is(err, backend.ErrNotFound) {
			t.Fatalf("%d: something was stored: %v", i, err)
		}
	}
	unavailable := &backend.InfrastructureError{Op: "fetch the key", Nature: backend.Transient, Err: errSealer}
	for i, c := range []struct {
		fail   func() ([]byte, error)
		nature backend.Nature
	}{
		{panics, backend.Permanent},
		{func() ([]byte, error) { return nil, unavailable }, backend.Transient},
	} {
		f.op, f.fail = "open", c.fail
		_, err := s.FetchRun(t.Context(), backend.System(), "a")
		if !errors.Is(err, backend.ErrSealing) || errors.Is(err, backend.ErrCorrupt) || errors.Is(err, backend.ErrSealed) || backend.Classify(err) != c.nature {
			t.Errorf("%d: opening answers %v, %v", i, err, backend.Classify(err))
		}
		_, err = s.FetchEvent(t.Context(), backend.System(), "a", 1)
		if !errors.Is(err, backend.ErrSealing) {
			t.Errorf("%d: opening an event answers %v", i, err)
		}
		// An audit counts it, and says nothing of damage.
		if found := audit(t, s); len(found) != 1 || found[0].Check != "I2.sealed" {
			t.Errorf("%d: %+v", i, found)
		}
	}
	f.fail = fails
	_, err := s.FetchRun(t.Context(), backend.System(), "a")
	wantCorrupt(t, "a document that a Sealer refuses to open", err, "a", "document")
	if !errors.Is(err, errSealer) {
		t.Errorf("%v does not say why", err)
	}
	f.op = ""
	if _, err := s.Commit(t.Context(), backend.System(), step(doc, token)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func wantSealing(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*backend.SealingError](err); !ok || backend.Classify(err) != backend.Permanent || strings.Contains(err.Error(), "secret") {
		t.Errorf("%s answers %v; it must be a *SealingError that holds no content", what, err)
	}
}

func handedBack(t *testing.T, d Data) {
	with, published := engine(t, d.Open(t, Keys(t, "k1")))
	_, err := with.Start(t.Context(), published, map[string]string{"name": "n"}, belay.StartOptions{ID: "r"})
	must(t, err)

	var codes []string
	plain := d.Open(t, nil)
	without, err := belay.New(belay.Config{
		Backend: plain, Nodes: nodes(), Logger: quiet, AbandonBackoff: time.Millisecond, MaxAbandons: 3,
		Observers: []belay.Observer{{Abandoned: func(_ context.Context, a belay.Abandon) { codes = append(codes, a.Reasons[0].Code) }}},
	})
	must(t, err)
	for {
		r, err := with.Inspect(t.Context(), "r")
		must(t, err)
		if r.Poison.Reason != "" {
			if r.Poison.Reason != claim.MaxAbandonsExceeded || r.Status != run.Running || r.Attempts != 0 {
				t.Errorf("set aside as %+v", r)
			}
			break
		}
		if done := drain(t, without); done.Commits != 0 {
			t.Fatalf("without the key: %+v", done)
		}
	}
	if len(codes) != 3+1 || len(slices.Compact(codes)) != 1 || codes[0] != lifecycle.CodeSealedDocument {
		t.Errorf("handed back as %v", codes)
	}
	_, err = without.Cancel(t.Context(), "r", "")
	wantSealed(t, "a cancel without the key", err, "document", "k1")
	_, err = with.RetryPoisoned(t.Context(), "r")
	must(t, err)
	drain(t, with)
	if r, err := with.Inspect(t.Context(), "r"); err != nil || r.Status != run.Waiting {
		t.Errorf("with the key: %+v, %v", r, err)
	}
}
