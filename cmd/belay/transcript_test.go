package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs command lines and compares what they print, and their exit codes, with
// what testdata says. Words are separated by spaces; there is no quoting.
func TestTranscripts(t *testing.T) {
	for _, name := range []string{"graph", "run"} {
		t.Run(name, func(t *testing.T) {
			datadriven.RunTest(t, "testdata/"+name, func(t *testing.T, d *datadriven.TestData) string {
				return transcript(t, strings.Split(d.Input, " "))
			})
		})
	}
}

var (
	ulid = regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`)
	wake = regexp.MustCompile(`again at [-:0-9TZ]+`)
)

func transcript(t *testing.T, args []string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(context.Background(), args, &terminal{
		in: strings.NewReader(`{"name":"Grace"}`), out: &out, err: &errs, getenv: func(string) string { return "" },
	})
	var b strings.Builder
	if out.Len() > 0 {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(out.String(), "\n"))
	}
	for line := range strings.Lines(errs.String()) {
		fmt.Fprintf(&b, "2> %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(&b, "exit %d\n", code)
	text := ulid.ReplaceAllString(b.String(), "RUN")
	return wake.ReplaceAllString(text, "again at INSTANT")
}
