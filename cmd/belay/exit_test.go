package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestAnInputTooLargeToStoreIsAUsageError(t *testing.T) {
	input := `{"name":"` + strings.Repeat("x", 17<<20) + `"}`
	var out, problems bytes.Buffer
	none := func(string) string { return "" }
	term := &terminal{in: strings.NewReader(input), out: &out, err: &problems, getenv: none, now: time.Now}
	args := []string{"run", "testdata/graphs/greet.yaml", "--db", "memory:", "--input", "@-"}
	if code := execute(t.Context(), args, term); code != exitUsage || !strings.Contains(problems.String(), "the limit is 16777216") {
		t.Errorf("exit %d, %s", code, problems.String())
	}
}
