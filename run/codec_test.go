package run

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

func at(seconds int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, seconds, 123456000, time.UTC)
}

// specimens are documents that have, together, every member.
func specimens() map[string]*Document {
	ref := graph.Ref{ID: "order", Hash: strings.Repeat("0f", 32)}
	snapshot := []Channel{{Name: "card", Value: value.Value(`{"number":"4\u0000"}`), Version: 1}, {Name: "n", Value: value.Value(`9007199254740993`)}}
	return map[string]*Document{
		"parked": {
			ID: "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T", Graph: ref, Status: Running, Step: 3, Seq: 7, EventSeq: 41,
			StartedAt: at(0), UpdatedAt: at(5),
			Input:     []Channel{{Name: "extra", Value: value.Null()}, {Name: "order", Value: value.Value(`{"id":42,"note":"ünï"}`), Version: 1}},
			State:     []Channel{{Name: "log", Value: value.Value(`[]`)}, {Name: "total", Value: value.Value(`1.50`), Version: 12}},
			Edges:     []EdgeCount{{"retry", 2}, {"start", 1}},
			Barriers:  []Barrier{{"join", []string{"charge", "reserve"}}},
			Changed:   []string{"total"},
			Pending:   []string{"approve"},
			Completed: []NodeCount{{"charge", 2}},
			Tasks: []Task{
				{
					ID: "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T:3:charge", Node: "charge", Failures: 2, LastError: "card\nrefused \"again\"",
					Snapshot: snapshot, InputHash: inputHash(snapshot), PlannedAt: at(1), Reason: ParkRetry,
				},
				{ID: "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T:3:poll", Node: "poll", InputHash: inputHash(nil), PlannedAt: at(1), Reason: ParkSnooze},
			},
			Writes: []Write{
				{Node: "notify", Skipped: true, Reason: "nobody asked"},
				{Node: "reserve", Update: []Channel{{Name: "log", Value: value.Value(`["reserved"]`)}}},
			},
			Timers: []Timer{
				{TimerInterrupt, "approval", at(60)},
				{TimerTask, "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T:3:charge", at(9)},
				{TimerTask, "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T:3:poll", at(30)},
			},
			Interrupts: []Interrupt{
				{
					ID: "approval", Node: "approve", Question: value.Value(`{"text":"Ship?"}`), Field: "ok", Schema: value.Value(`{"type":"boolean"}`),
					Deadline: at(60), Default: value.Value(`false`), Status: InterruptOpen, RequestedAt: at(4),
				},
				{ID: "who", Node: "poll", Status: InterruptResolved, Answer: value.Value(`"Ada"`), RequestedAt: at(2), ResolvedAt: at(3)},
			},
			Metadata: map[string]string{"trace": "00-abc", "a \"key\"": ""},
		},
		"done": {
			ID: "r", Graph: ref, Status: Done, Step: 1, Seq: 2, EventSeq: 6, StartedAt: at(0), UpdatedAt: at(1), FinishedAt: at(1),
			Output: value.Value(`{"total":1}`), Completed: []NodeCount{{"charge", 1}},
		},
		"failed": {
			ID: "r", Graph: ref, Status: Failed, Step: 2, Seq: 3, EventSeq: 9, StartedAt: at(0), UpdatedAt: at(1), FinishedAt: at(1),
			Failure:    &Failure{Code: CodeGuard, Message: "the guard of the edge end: index out of range", Node: "charge", Details: value.Value(`{"edge":"end"}`)},
			Interrupts: []Interrupt{{ID: "r:1:ask", Node: "ask", Status: InterruptClosed, RequestedAt: at(0)}},
		},
		"cancelled": {
			ID: "r", Graph: ref, Status: Cancelled, Step: 1, Seq: 2, EventSeq: 5, StartedAt: at(0), UpdatedAt: at(1), FinishedAt: at(1),
			Reason: "no longer wanted",
		},
		"waiting": {
			ID: "r", Graph: ref, Status: Waiting, Step: 2, Seq: 2, EventSeq: 5, StartedAt: at(0), UpdatedAt: at(1),
			Pending: []string{"ask"}, Interrupts: []Interrupt{{ID: "r:1:ask", Node: "ask", Status: InterruptOpen, RequestedAt: at(1)}},
		},
		"smallest": {ID: "r", Graph: ref, Status: Running},
	}
}

// news are documents that only format 2 can say.
func news() map[string]*Document {
	migrated := *specimens()["parked"]
	migrated.Lineage = []Ancestor{{Hash: strings.Repeat("0a", 32), Until: 4}, {Hash: strings.Repeat("0b", 32), Until: 7}}
	renamed := migrated
	renamed.Tasks = slices.Clone(migrated.Tasks)
	renamed.Tasks[0].Node = "bill"
	renamed.Barriers = []Barrier{{"join", []string{"bill", "reserve"}}}
	renamed.Renamed = []Renaming{{Node: "bill", Was: "charge"}}
	return map[string]*Document{"migrated": &migrated, "renamed": &renamed}
}

// all are the specimens of every format.
func all() map[string]*Document {
	docs := specimens()
	maps.Copy(docs, news())
	return docs
}

func specimenEvents() map[string]Event {
	return map[string]Event{
		"checkpoint": {Run: "r", Seq: 4, Type: EventCheckpointCommitted, At: at(1), Step: 1, Checkpoint: checkpoint.StepCommitted, Commit: 2},
		"failed": {
			Run: "r", Seq: 1, Type: EventNodeFailed, At: at(1), Step: 1, Node: "charge", Task: "r:1:charge", Attempt: 2, Wake: at(9),
			Failure: &Failure{Code: "card_refused", Message: "no", Node: "charge", Details: value.Value(`[1]`)},
		},
		"updated":   {Run: "r", Seq: 2, Type: EventStateUpdated, At: at(1), Step: 1, Field: "total", Version: 3},
		"edge":      {Run: "r", Seq: 3, Type: EventEdgeFired, At: at(1), Step: 1, Edge: "end"},
		"requested": {Run: "r", Seq: 5, Type: EventInterruptRequested, At: at(1), Step: 1, Node: "ask", Interrupt: "r:1:ask", Data: value.Value(`{"text":"Ship?"}`)},
		"migrated":  {Run: "r", Seq: 7, Type: EventGraphMigrated, At: at(1), Step: 3, Data: value.Value(`{"from":"0a","to":"0b"}`)},
		"skipped":   {Run: "r", Seq: 6, Type: EventNodeSkipped, At: at(1), Step: 0, Node: "notify", Reason: "nobody asked"},
	}
}

func TestEveryLegalDocumentSurvivesItsEncoding(t *testing.T) {
	for name, d := range all() {
		raw, err := Encode(d)
		if err != nil {
			t.Fatal(name, err)
		}
		back, err := Decode(raw)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, raw)
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Errorf("%s: decoding gave another document (-encoded +decoded):\n%s", name, diff)
		}
		again, err := Encode(back)
		if err != nil || !bytes.Equal(raw, again) {
			t.Errorf("%s: encoded again, with error %v:\n%s\n%s", name, err, raw, again)
		}
	}
}

// The golden files are documents as each format wrote them. They are read for ever, and
// written the same by a writer that is pinned to their format.
func TestGoldenDocumentsOfEveryFormat(t *testing.T) {
	for format, docs := range map[int]map[string]*Document{1: specimens(), 2: all()} {
		for name, d := range docs {
			golden(t, fmt.Sprintf("testdata/format%d/%s.json", format, name), func() ([]byte, error) { return EncodeAs(d, format) }, func(raw []byte) error {
				back, err := Decode(raw)
				if diff := cmp.Diff(d, back); err == nil && diff != "" {
					t.Errorf("%s (-want +golden):\n%s", name, diff)
				}
				return err
			})
		}
		if files, err := filepath.Glob(fmt.Sprintf("testdata/format%d/[^e]*.json", format)); err != nil || len(files) != len(docs) {
			t.Errorf("format %d has %d golden documents and %d specimens (%v)", format, len(files), len(docs), err)
		}
	}
}

func TestGoldenEvents(t *testing.T) {
	for name, e := range specimenEvents() {
		golden(t, "testdata/format1/event_"+name+".json", func() ([]byte, error) { return EncodeEvent(e) }, func(raw []byte) error {
			back, err := DecodeEvent(raw)
			if diff := cmp.Diff(e, back); err == nil && diff != "" {
				t.Errorf("%s (-want +golden):\n%s", name, diff)
			}
			return err
		})
	}
}

func golden(t *testing.T, path string, encode func() ([]byte, error), decode func([]byte) error) {
	t.Helper()
	now, err := encode()
	if err != nil {
		t.Fatal(err)
	}
	if rewrite() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(now, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	if err := decode(raw); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if !bytes.Equal(raw, now) {
		t.Errorf("%s is not what is written now:\n%s\n%s", path, raw, now)
	}
}

func TestDecodeRefusesWhatIsDamaged(t *testing.T) {
	const head = `{"format":1,"run":{"id":"r","graph":{"id":"g","hash":"h"},"status":"running"`
	for name, raw := range map[string]string{
		"empty":                    ``,
		"no object":                `[]`,
		"cut short":                head,
		"cut within a value":       head + `,"state":{"a":{"value":[1,`,
		"no format":                `{"run":{}}`,
		"format later":             `{"run":{},"format":1}`,
		"format 0":                 `{"format":0,"run":{}}`,
		"format no integer":        `{"format":1.0,"run":{}}`,
		"no run":                   `{"format":1}`,
		"run is no object":         `{"format":1,"run":[]}`,
		"something follows":        head + `}} x`,
		"a member twice":           head + `,"status":"running"}}`,
		"a name twice":             head + `,"state":{"a":{"value":1},"a":{"value":2}}}}`,
		"names out of order":       head + `,"state":{"b":{"value":1},"a":{"value":2}}}}`,
		"a number for a text":      head + `,"reason":1}}`,
		"a text for a number":      head + `,"step":"1"}}`,
		"a fraction for a counter": head + `,"step":1.5}}`,
		"a counter beyond int64":   head + `,"step":9223372036854775808}}`,
		"a list for an object":     head + `,"state":[]}}`,
		"an object for a list":     head + `,"pending":{}}}`,
		"an instant without zone":  head + `,"started_at":"2026-01-01T00:00:00.000000"}}`,
		"an instant in seconds":    head + `,"started_at":"2026-01-01T00:00:00Z"}}`,
		"an instant of no day":     head + `,"started_at":"2026-02-30T00:00:00.000000Z"}}`,
		"invalid UTF-8":            head + ",\"reason\":\"\xff\"}}",
		"skipped, but false":       head + `,"writes":[{"node":"a","skipped":false}]}}`,
		"an unknown status":        `{"format":1,"run":{"id":"r","graph":{"id":"g","hash":"h"},"status":"odd"}}`,
		"created":                  `{"format":1,"run":{"id":"r","graph":{"id":"g","hash":"h"},"status":"created"}}`,
		"a value that is absent":   head + `,"state":{"a":{"version":1}}}}`,
	} {
		_, err := Decode([]byte(raw))
		if !errors.Is(err, ErrInvalidDocument) || errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeLeavesNewerDocumentsToNewerBuilds(t *testing.T) {
	const head = `{"format":2,"run":{"id":"r","graph":{"id":"g","hash":"h"},"status":"running"`
	for name, raw := range map[string]string{
		"a newer format":               `{"format":3,"run":{"anything":true}}`,
		"a newer format, other shape":  `{"format":7,"what":[]}`,
		"an unknown member":            head + `,"color":"red"}}`,
		"an unknown member of a part":  head + `,"timers":[{"kind":"task","key":"k","color":{"a":[1]}}]}}`,
		"an unknown envelope member":   head + `},"signature":"x"}`,
		"an unknown member of a value": head + `,"state":{"a":{"value":1,"unit":"EUR"}}}}`,
	} {
		_, err := Decode([]byte(raw))
		var format *FormatError
		if !errors.As(err, &format) || !errors.Is(err, ErrFormat) || errors.Is(err, ErrInvalidDocument) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := map[bool]int{true: Format}[strings.Contains(name, "unknown")]; want != 0 && format.Format != want {
			t.Errorf("%s: format %d", name, format.Format)
		}
	}
}

// A document that went through another tool may have lost the order of its members and
// gained white space between them.
func TestDecodeReadsMembersInAnyOrder(t *testing.T) {
	want := specimens()["done"]
	raw := `{ "format": 1, "run": {"seq": 2, "output": {"total":1}, "status": "done", "step": 1, "event_seq": 6,
		"completed": {"charge": 1}, "graph": {"hash": "` + want.Graph.Hash + `", "id": "order"}, "id": "r",
		"finished_at": "2026-01-01T00:00:01.123456Z", "updated_at": "2026-01-01T00:00:01.123456Z", "started_at": "2026-01-01T00:00:00.123456Z"} }`
	got, err := Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeKeepsNothingOfItsArgument(t *testing.T) {
	want := specimens()["parked"]
	raw, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] = '!'
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Values are parts of one buffer: growing one must not reach into the next.
	for _, c := range got.State {
		if cap(c.Value) != len(c.Value) {
			t.Errorf("%s may grow in place", c.Name)
		}
	}
}

// The chain of upcasts is tried with two made up for it.
func TestOlderDocumentsAreBroughtUpStepByStep(t *testing.T) {
	rename := func(from, to string) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) { return bytes.ReplaceAll(b, []byte(from), []byte(to)), nil }
	}
	r := newDecoder([]byte(`{"name":"r","graph":{"id":"g","hash":"h"},"status":"running"}`))
	d := r.older(1, []func([]byte) ([]byte, error){rename(`"name"`, `"key"`), rename(`"key"`, `"id"`)})
	if r.err != nil || d == nil || d.ID != "r" || d.Valid() != nil {
		t.Fatalf("%+v, %v", d, r.err)
	}
	r = newDecoder([]byte(`{}`))
	broken := errors.New("broken")
	if d := r.older(1, []func([]byte) ([]byte, error){func([]byte) ([]byte, error) { return nil, broken }}); d != nil || !errors.Is(r.err, broken) {
		t.Fatalf("%+v, %v", d, r.err)
	}
	for i, upcast := range upcasts {
		if upcast == nil {
			t.Errorf("format %d has no upcast", i+1)
		}
	}
}

// A pinned writer never leaves out what its format cannot say.
func TestAPinnedWriterRefusesWhatItsFormatCannotSay(t *testing.T) {
	for name, d := range news() {
		raw, err := EncodeAs(d, 1)
		var refused *WriteFormatError
		if raw != nil || !errors.As(err, &refused) || !errors.Is(err, ErrFormat) || refused.Needs != 2 || refused.Format != 1 || refused.Run != d.ID {
			t.Errorf("%s in format 1: %s, %v", name, raw, err)
		}
		for _, format := range []int{0, 2} {
			raw, err := EncodeAs(d, format)
			newest, err2 := Encode(d)
			if err != nil || err2 != nil || !bytes.Equal(raw, newest) {
				t.Errorf("%s in format %d: %s, %v, %v", name, format, raw, err, err2)
			}
		}
	}
	onlyRenamed := *specimens()["waiting"]
	onlyRenamed.Renamed = []Renaming{{Node: "ask", Was: "question"}}
	if err := CheckWritable(&onlyRenamed, 1); !errors.Is(err, ErrFormat) {
		t.Errorf("renamed nodes in format 1: %v", err)
	}
	for _, format := range []int{-1, Format + 1} {
		if raw, err := EncodeAs(specimens()["done"], format); raw != nil || !errors.Is(err, claim.ErrInvalidArgument) {
			t.Errorf("format %d: %s, %v", format, raw, err)
		}
	}
}

// What format 2 added is an unknown member to format 1.
func TestADocumentOfFormat1HasNoMembersOfFormat2(t *testing.T) {
	for name, d := range news() {
		raw, err := Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Decode(bytes.Replace(raw, []byte(`{"format":2`), []byte(`{"format":1`), 1))
		var format *FormatError
		if !errors.As(err, &format) || format.Format != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEncodeRefusesWhatNoBytesStandFor(t *testing.T) {
	for name, d := range map[string]*Document{
		"nil":                      nil,
		"text that is not UTF-8":   {ID: "\xff"},
		"a channel without value":  {State: []Channel{{Name: "a"}}},
		"a barrier without source": {Barriers: []Barrier{{Edge: "a"}}},
	} {
		if raw, err := Encode(d); !errors.Is(err, ErrInvalidDocument) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
}

func TestEventContentIsCanonical(t *testing.T) {
	for name, e := range specimenEvents() {
		raw, err := EncodeEvent(e)
		if err != nil {
			t.Fatal(name, err)
		}
		canonical, err := value.Canonical(raw)
		if err != nil || !bytes.Equal(raw, canonical) {
			t.Errorf("%s, %v:\n%s\n%s", name, err, raw, canonical)
		}
	}
}

func TestEventsAreRefused(t *testing.T) {
	good := specimenEvents()["edge"]
	for name, change := range map[string]func(*Event){
		"no run":                      func(e *Event) { e.Run = "" },
		"sequence 0":                  func(e *Event) { e.Seq = 0 },
		"unknown type":                func(e *Event) { e.Type = "odd" },
		"negative step":               func(e *Event) { e.Step = -1 },
		"negative attempt":            func(e *Event) { e.Attempt = -1 },
		"negative version":            func(e *Event) { e.Version = -1 },
		"negative commit":             func(e *Event) { e.Commit = -1 },
		"no time":                     func(e *Event) { e.At = time.Time{} },
		"nanoseconds":                 func(e *Event) { e.At = e.At.Add(1) },
		"another zone":                func(e *Event) { e.At = e.At.In(time.FixedZone("x", 3600)) },
		"wake after the year 9999":    func(e *Event) { e.Wake = latest.Add(time.Microsecond) },
		"checkpoint of another event": func(e *Event) { e.Checkpoint = checkpoint.Snoozed },
		"unknown checkpoint":          func(e *Event) { e.Type, e.Checkpoint = EventCheckpointCommitted, "odd" },
		"no checkpoint":               func(e *Event) { e.Type = EventCheckpointCommitted },
		"failure without code":        func(e *Event) { e.Failure = &Failure{Message: "x"} },
		"failure without message":     func(e *Event) { e.Failure = &Failure{Code: "x"} },
		"not UTF-8":                   func(e *Event) { e.Reason = "\xff" },
	} {
		e := good
		change(&e)
		if raw, err := EncodeEvent(e); !errors.Is(err, ErrInvalidEvent) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	if _, err := AppendEvent(nil, nil); !errors.Is(err, ErrInvalidEvent) {
		t.Error(err)
	}
	for name, raw := range map[string]string{
		"empty":             ``,
		"no object":         `"x"`,
		"something follows": `{"at":"2026-01-01T00:00:00.000000Z","run":"r","seq":1,"step":1,"type":"edge_fired"} {}`,
		"no time":           `{"run":"r","seq":1,"step":1,"type":"edge_fired"}`,
		"format of its own": `{"at":"2026-01-01T00:00:00.000000Z","format":1,"run":"r","seq":1,"step":1,"type":"edge_fired"}`,
		"no type":           `{"at":"2026-01-01T00:00:00.000000Z","run":"r","seq":1,"step":1}`,
	} {
		if e, err := DecodeEvent([]byte(raw)); !errors.Is(err, ErrInvalidEvent) || errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	for name, raw := range map[string]string{
		"unknown member": `{"at":"2026-01-01T00:00:00.000000Z","run":"r","seq":1,"step":1,"type":"edge_fired","color":1}`,
		"newer format":   `{"format":2,"odd":[]}`,
		"unknown type":   `{"at":"2026-01-01T00:00:00.000000Z","run":"r","seq":1,"step":1,"type":"node_sang"}`,
	} {
		if e, err := DecodeEvent([]byte(raw)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestEveryEventTypeIsKnown(t *testing.T) {
	seen := map[EventType]bool{}
	for _, typ := range EventTypes() {
		if !typ.Valid() || seen[typ] {
			t.Errorf("%s: valid %v, twice %v", typ, typ.Valid(), seen[typ])
		}
		seen[typ] = true
	}
}

// Whatever decodes is valid, and survives its encoding.
func FuzzDecode(f *testing.F) {
	for _, d := range all() {
		raw, err := Encode(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := Decode(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalidDocument) && !errors.Is(err, ErrFormat) {
				t.Fatalf("an error of neither kind: %v", err)
			}
			return
		}
		if err := d.Valid(); err != nil {
			t.Fatal(err)
		}
		first, err := Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		if bound := atMost.document(d); bound < len(first) {
			t.Fatalf("%d bytes, estimated as at most %d", len(first), bound)
		}
		back, err := Decode(first)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Fatal(diff)
		}
		if second, err := Encode(back); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%v\n%s\n%s", err, first, second)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range specimenEvents() {
		raw, err := EncodeEvent(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := DecodeEvent(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalidEvent) && !errors.Is(err, ErrFormat) {
				t.Fatalf("an error of neither kind: %v", err)
			}
			return
		}
		first, err := EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		if bound := atMost.event(&e); bound < len(first) {
			t.Fatalf("%d bytes, estimated as at most %d", len(first), bound)
		}
		back, err := DecodeEvent(first)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Fatal(diff)
		}
	})
}
