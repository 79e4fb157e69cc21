package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
