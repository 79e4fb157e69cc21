package belay_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inMemory is a program that keeps its runs in memory.
const inMemory = `package main

import (
	"log"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

func main() {
	_, err := belay.New(belay.Config{Backend: memory.New(memory.Options{}), Nodes: std.Register(node.NewRegistry())})
	if err != nil {
		log.Fatal(err)
	}
}
`

// A program gets what it uses: one that keeps its runs in memory gets no database driver and nothing
// of OpenTelemetry, and one that observes with it gets no SDK and no exporter.
func TestProgramsGetNeitherDriversNorSDKsThatTheyDoNotUse(t *testing.T) {
	drivers := []string{"database/sql", "modernc.org", "github.com/jackc"}
	for _, tt := range []struct {
		name, source string
		without      []string
		with         string
	}{
		{"in memory", inMemory, append([]string{"go.opentelemetry.io", "github.com/prometheus", "testing", "net/http/httptest"}, drivers...), "github.com/oklog/ulid/v2"},
		{
			"in memory, observed",
			strings.Replace(inMemory, `"log"`, `"log"
	_ "github.com/belay-run/belay/lifecycle/otel"`, 1),
			append([]string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/contrib", "github.com/prometheus", "google.golang.org"}, drivers...),
			"go.opentelemetry.io/otel/trace",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(tt.source), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("go", "list", "-deps", file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			found := false
			for _, pkg := range strings.Fields(string(out)) {
				found = found || within(pkg, tt.with)
				for _, banned := range tt.without {
					if within(pkg, banned) && pkg != "database/sql/driver" { // interfaces only, which ids implement
						t.Errorf("it gets %s", pkg)
					}
				}
			}
			if !found {
				t.Errorf("it does not get %s, so this list is not that of its packages", tt.with)
			}
		})
	}
}
