package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
)

func TestBeginningsAreLookedUpWithoutAnIndexToo(t *testing.T) {
	ids := []string{"ab", "abc", "b"}
	for i := range 2 * maxCandidates {
		ids = append(ids, fmt.Sprintf("many%d", i))
	}
	s := inMemory(t, ids)
	for prefix, want := range map[string]string{"ab": "ab", "abc": "abc", "b": "b"} {
		if info, err := findRun(t.Context(), s, backend.System(), prefix); err != nil || info.Document.ID != want {
			t.Errorf("%s: %v, want %s", prefix, err, want)
		}
	}
	for prefix, candidates := range map[string]int{"a": 2, "c": 0, "many": maxCandidates} {
		_, err := findRun(t.Context(), s, backend.System(), prefix)
		ambiguous, found := errors.AsType[*ambiguousError](err)
		switch {
		case exitCode(err) != exitUsage || found != (candidates > 0):
			t.Errorf("%s: %v", prefix, err)
		case found && (len(ambiguous.candidates) != candidates || ambiguous.more != (prefix == "many")):
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func inMemory(t *testing.T, ids []string) *store {
	t.Helper()
	s := &store{Store: memory.New(memory.Options{}), place: &location{}, transient: true}
	engine, err := newEngine(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := belay.ReadGraph("testdata/graphs/ask.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engine.Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := engine.Start(t.Context(), ref, nil, belay.StartOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestPagesFollowEachOtherWithoutGapOrOverlap(t *testing.T) {
	ids := []string{"a", "b", "c", "d,e", "f"}
	s := inMemory(t, ids)
	var out bytes.Buffer
	d := &desk{terminal: &terminal{out: &out, json: true, now: time.Now}, place: &location{}}
	opts := listOptions{limit: 2}
	var seen []string
	for pages := 0; ; pages++ {
		if pages > len(ids) {
			t.Fatal("the pages do not end")
		}
		q, err := opts.query()
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.ListRuns(t.Context(), d.scope(), q)
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := d.list(page, time.Now(), opts); err != nil {
			t.Fatal(err)
		}
		var listed struct {
			Runs []struct{ Run string }
			Next string
		}
		if err := json.Unmarshal(out.Bytes(), &listed); err != nil {
			t.Fatal(err)
		}
		for _, r := range listed.Runs {
			seen = append(seen, r.Run)
		}
		if opts.before = listed.Next; opts.before == "" {
			break
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, ids) {
		t.Errorf("listed %v, want each of %v once", seen, ids)
	}
}
