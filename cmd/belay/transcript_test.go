package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs command lines and compares what they print, and their exit codes, with
// what testdata says. The commands of one file share a data directory. Words are separated by
// spaces; there is no quoting. RUN1 is the first run that was seen in a file, RUN2 the
// next; DATA is the data directory, INSTANT and SPAN stand for what is another one each time.
func TestTranscripts(t *testing.T) {
	for _, name := range []string{"graph", "run", "runs", "store"} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, data: t.TempDir()}
			datadriven.RunTest(t, "testdata/"+name, func(t *testing.T, d *datadriven.TestData) string {
				return s.run(d.Input)
			})
		})
	}
}

// script is the state of one transcript.
type script struct {
	t    *testing.T
	data string
	runs []string
}

func (s *script) run(line string) string {
	s.t.Helper()
	line = strings.ReplaceAll(line, "DATA", s.data)
	for i, id := range s.runs {
		line = strings.ReplaceAll(line, fmt.Sprintf("RUN%d", i+1), id)
	}
	var out, errs bytes.Buffer
	code := execute(context.Background(), strings.Split(line, " "), &terminal{
		in: strings.NewReader(`{"name":"Grace"}`), out: &out, err: &errs, now: time.Now,
		getenv: func(name string) string { return map[string]string{"XDG_DATA_HOME": s.data}[name] },
	})
	var b strings.Builder
	if out.Len() > 0 {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(out.String(), "\n"))
	}
	for line := range strings.Lines(errs.String()) {
		fmt.Fprintf(&b, "2> %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(&b, "exit %d\n", code)
	return s.mask(b.String())
}

var (
	ulid    = regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`)
	instant = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	size    = regexp.MustCompile(`\d+ bytes, verified`)
	away    = regexp.MustCompile(`\((in )?[\dhms]+( ago)?\)`)
)

// mask replaces what is another one each time. Padding behind what is masked stays as it was, since
// ids and instants have one length.
func (s *script) mask(text string) string {
	text = ulid.ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range s.runs {
			if known == id {
				return "RUN" + strconv.Itoa(i+1)
			}
		}
		s.runs = append(s.runs, id)
		return "RUN" + strconv.Itoa(len(s.runs))
	})
	text = strings.ReplaceAll(text, filepath.ToSlash(s.data), "DATA")
	text = instant.ReplaceAllString(text, "INSTANT")
	text = size.ReplaceAllString(text, "N bytes, verified")
	return away.ReplaceAllString(text, "(SPAN)")
}
