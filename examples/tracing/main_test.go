//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if is, err := child(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Two processes on one file, the first killed in the middle of a node: what both exported is one trace,
// in which every span hangs on the start.
func TestARunAcrossACrashIsOneTrace(t *testing.T) {
	spans, err := demonstrate(t.Context(), filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]span{}
	names := map[string]int{}
	for _, s := range spans {
		byID[s.SpanContext.SpanID] = s
		names[s.process()+" "+s.Name]++
	}
	for name, want := range map[string]int{
		"first start order": 1, "first claim order": 1, "first attempt reserve": 1, "first commit order": 2,
		"first attempt charge": 0, "first drive order": 0, // it was killed
		"second claim order": 1, "second attempt reserve": 0, "second attempt charge": 1, "second commit order": 1, "second drive order": 1,
	} {
		if names[name] != want {
			t.Errorf("%d times %q, want %d", names[name], name, want)
		}
	}
	for _, s := range spans {
		if s.attribute("belay.run.id") != orderID {
			t.Errorf("%s is about the run %q", s.Name, s.attribute("belay.run.id"))
		}
		root := s
		for range spans {
			if parent, ok := byID[root.Parent.SpanID]; ok {
				root = parent
			}
		}
		if root.Name != "start order" || root.process() != first || s.SpanContext.TraceID != root.SpanContext.TraceID {
			t.Errorf("%s of the %s process does not hang on the start, but on %q", s.Name, s.process(), root.Name)
		}
		if want := map[string]string{"second": "stolen"}[s.process()]; s.Name == "claim order" && want != "" && s.attribute("belay.claim.kind") != want {
			t.Errorf("the second claim is %q", s.attribute("belay.claim.kind"))
		}
	}
	var tree strings.Builder
	draw(&tree, spans)
	if t.Failed() {
		t.Log("\n" + tree.String())
	}
}
