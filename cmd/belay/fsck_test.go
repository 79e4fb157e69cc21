package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
)

// brokenOff is an audit that finds something, and then loses the database.
type brokenOff struct{ backend.Auditor }

func (brokenOff) Audit(context.Context, backend.AuditPolicy) iter.Seq2[backend.Finding, error] {
	return func(yield func(backend.Finding, error) bool) {
		f := backend.NewFinding("I8.wake", "nothing would wake it")
		f.Run = "r1"
		if yield(f, nil) {
			yield(backend.Finding{}, errors.New("the connection is lost"))
		}
	}
}

// TestACheckThatEndsEarlyTellsWhatItFound: and mends nothing.
func TestACheckThatEndsEarlyTellsWhatItFound(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out, errs bytes.Buffer
		term := &terminal{out: &out, err: &errs, now: time.Now, json: asJSON}
		code := term.finish(fsck(t.Context(), term, brokenOff{}, fsckOptions{repair: true}))
		if code != exitInfrastructure {
			t.Errorf("exit %d", code)
		}
		said := out.String() + errs.String()
		for _, want := range []string{"I8.wake", "r1", "the check ended early, after 1 finding: the connection is lost"} {
			if !strings.Contains(said, want) {
				t.Errorf("json %v: it does not say %q:\n%s", asJSON, want, said)
			}
		}
		if asJSON && (errs.Len() > 0 || strings.Count(out.String(), "\n") != 1) {
			t.Errorf("more than one JSON text:\n%s", said)
		}
	}
}
