package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/seal"
	"github.com/belay-run/belay/backend/sqlite"
)

// TestSealedContentIsSaidToBeSo: by every command that would show or change it; the others work.
func TestSealedContentIsSaidToBeSo(t *testing.T) {
	sealer, err := seal.AESGCM(map[string][]byte{"spring": make([]byte, seal.KeySize)}, "spring")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Sealer: sealer, SharedDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := newEngine(&store{Store: s, place: &location{}}, nil)
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
	if _, err := engine.Start(t.Context(), ref, nil, belay.StartOptions{ID: "r1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]struct {
		code int
		says string
	}{
		"runs list":                {exitDone, "r1"},
		"runs show r1":             {exitUsage, `unknown key`},
		"runs events r1":           {exitUsage, `this command has no keys`},
		"runs explain r1":          {exitUsage, `"spring"`},
		"runs cancel r1":           {exitUsage, `sealed`},
		"runs resolve r1 ask=null": {exitUsage, `sealed`},
		"runs retry --reason max_claim_abandons_exceeded": {exitDone, ""},
		"graph compat":        {exitDone, ""},
		"fsck":                {exitDone, "I2.sealed: 1 documents and"},
		"runs list --json":    {exitDone, `"r1"`},
		"runs show r1 --json": {exitUsage, `sealed`},
	} {
		var out, errs bytes.Buffer
		term := &terminal{out: &out, err: &errs, now: time.Now, getenv: func(string) string { return "" }}
		args := append(strings.Fields(command), "--db", path)
		code := execute(t.Context(), args, term)
		if said := out.String() + errs.String(); code != want.code || !strings.Contains(said, want.says) {
			t.Errorf("belay %s exits %d, not %d with %q:\n%s", command, code, want.code, want.says, said)
		}
	}
}
