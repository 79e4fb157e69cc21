package belay_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// TestEveryOptionIsInTheConfigurationPage holds docs/configuration.md against the structures.
func TestEveryOptionIsInTheConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, options := range map[string]reflect.Type{
		"## The engine: `belay.Config`":   reflect.TypeFor[lifecycle.Config](),
		"### `lifecycle.Retention`":       reflect.TypeFor[lifecycle.Retention](),
		"## SQLite: `sqlite.Options`":     reflect.TypeFor[sqlite.Options](),
		"## Postgres: `postgres.Options`": reflect.TypeFor[postgres.Options](),
		"## Memory: `memory.Options`":     reflect.TypeFor[memory.Options](),
	} {
		_, section, ok := strings.Cut(string(page), heading+"\n")
		if !ok {
			t.Errorf("docs/configuration.md has no section %s", heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\n### ")
		rows := map[string]bool{}
		for _, row := range regexp.MustCompile(`(?m)^\| ((?:`+"`\\w+`"+`(?:, )?)+) \|`).FindAllStringSubmatch(section, -1) {
			for name := range strings.SplitSeq(row[1], ", ") {
				rows[strings.Trim(name, "`")] = true
			}
		}
		for field := range options.Fields() {
			if field.IsExported() && !rows[field.Name] {
				t.Errorf("%s has no row for %s.%s", heading, options, field.Name)
			}
			delete(rows, field.Name)
		}
		for name := range rows {
			t.Errorf("%s has a row for %s, which %s does not have", heading, name, options)
		}
	}
}

// TestEveryReasonIsInTheRunbook: an operator who meets a code finds what to do.
func TestEveryReasonIsInTheRunbook(t *testing.T) {
	page, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		claim.MaxAttemptsExceeded, claim.MaxAbandonsExceeded,
		node.CodeUnknownType, node.CodeUnsupportedVersion, node.CodeInvalidConfig, node.CodeTimeoutTooLong,
		lifecycle.CodeNewerDocument, lifecycle.CodeSealedDocument, lifecycle.CodeCorruptDocument, lifecycle.CodeUndecodableGraph, lifecycle.CodeCorruptGraph, lifecycle.CodeMissingGraph,
		run.CodeError, run.CodePanic, run.CodeTimeout, run.CodeInvalidUpdate, run.CodeInvalidAsk, run.CodeGuard, run.CodeReducer, run.CodeSupersteps, run.CodeTooLarge,
	} {
		if !strings.Contains(string(page), "`"+code+"`") {
			t.Errorf("docs/runbook.md does not name %s", code)
		}
	}
}

// TestEveryHazardHasATest holds docs/hazards.md against the names of tests and of conformance
// cases, so that neither can lose one unnoticed.
func TestEveryHazardHasATest(t *testing.T) {
	page, err := os.ReadFile("docs/hazards.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^\*\*(H\d+), `).FindAllSubmatch(page, -1)
	if len(named) == 0 {
		t.Fatal("docs/hazards.md names no hazard")
	}
	tested := testedHazards(t)
	for _, m := range named {
		if id := string(m[1]); !tested[id] {
			t.Errorf("no test or conformance case is named after %s", id)
		}
	}
}

// TestLinksInTheDocsLead finds links to files that are not there.
func TestLinksInTheDocsLead(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, decisions...), "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
	code := regexp.MustCompile("(?s)```.*?```")
	link := regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			target := string(m[1])
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, target)
			}
		}
	}
}

// testedHazards collects the ids in names of tests and of conformance cases.
func testedHazards(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`func Test\w*H\d+\w*|"H\d+\.`)
	id := regexp.MustCompile(`H\d+`)
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		kit := filepath.Dir(path) == "proptest" && strings.HasPrefix(d.Name(), "case_")
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") && (!kit || !strings.HasSuffix(path, ".go")) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range name.FindAll(text, -1) {
			for _, hazard := range id.FindAll(n, -1) {
				found[string(hazard)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
