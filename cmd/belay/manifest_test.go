package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

// TestAManifestOfTheBuiltInNodesChecksTheirExpressions: a manifest is data, and yet a typing
// error in a template is found by its path.
func TestAManifestOfTheBuiltInNodesChecksTheirExpressions(t *testing.T) {
	raw, err := json.Marshal(std.Register(node.NewRegistry()).Manifest())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.json")
	if err := os.WriteFile(manifest, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile("testdata/graphs/greet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(strings.Replace(string(good), "${name}", "${nmae}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, data: dir}
	if got := s.run("graph check testdata/graphs/greet.yaml --nodes "+manifest, "", ""); !strings.Contains(got, "exit 0") {
		t.Errorf("a good graph is refused:\n%s", got)
	}
	got := s.run("graph check "+bad+" --nodes "+manifest, "", "")
	if !strings.Contains(got, "/nodes/compose/config/values/text") || !strings.Contains(got, "exit 1") {
		t.Errorf("the mistake is not found:\n%s", got)
	}
}

// TestAManifestSaysWhatARunningGraphNeeds: of a type it knows the version, or an older one that it
// accepts, whose config is not held against the newer schema.
func TestAManifestSaysWhatARunningGraphNeeds(t *testing.T) {
	old, err := graph.ParseManifest([]byte(`{"format":1,"nodes":[{"name":"pay","version":2,"config":{"type":"object","required":["fee"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := graph.ParseYAML([]byte("id: order\nnodes: {pay: {use: pay, config: {fee: 1}}}\nedges: {in: {from: $start, to: pay}, out: {from: pay, to: $finish}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	running, err := graph.Publish(doc, old)
	if err != nil {
		t.Fatal(err)
	}
	for manifest, want := range map[string]string{
		`{"name":"pay","version":2,"config":{"type":"object"}}`:                                             "",
		`{"name":"pay","version":3,"accepts":[2],"config":{"type":"object","required":["tax"]}}`:            "",
		`{"name":"pay","version":3,"config":{"type":"object"}}`:                                             node.CodeUnsupportedVersion,
		`{"name":"pay","version":2,"config":{"type":"object","required":["tax"]}}`:                          node.CodeInvalidConfig,
		`{"name":"ship","version":1}`:                                                                       node.CodeUnknownType,
		`{"name":"pay","version":4,"accepts":[2,3]},{"name":"pay","version":3,"accepts":[2]}`:               "",
		`{"name":"pay","version":2,"max_timeout":"1s","config":{"type":"object"}},{"name":"b","version":1}`: "",
	} {
		path := filepath.Join(t.TempDir(), "manifest.json")
		if err := os.WriteFile(path, []byte(`{"format":1,"nodes":[`+manifest+`]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		registry, err := registryOf(path)
		if err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
		_, err = registry.Prepare(running, 0)
		refusal, refused := errors.AsType[*node.IncompatibleError](err)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", manifest, err)
		case want != "" && (!refused || len(refusal.Reasons) != 1 || refusal.Reasons[0].Code != want):
			t.Errorf("%s: %v, want %s", manifest, err, want)
		}
	}
}
