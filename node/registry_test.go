package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

var update = flag.Bool("update", false, "write the golden files anew")

type nobody = struct{}

func plain(name string, version int, opts ...node.Option) node.Type {
	return node.Of(name, version, func(context.Context, nobody) (nobody, error) { return nobody{}, nil }, opts...)
}

func keep(config value.Value) (value.Value, error) { return config, nil }

func ready(node.Site) (node.Func, error) {
	return func(context.Context, *node.Call) (map[string]value.Value, error) { return nil, nil }, nil
}

func TestBadTypesAreRecorded(t *testing.T) {
	tests := map[string]struct {
		typ  node.Type
		want string // "": good
	}{
		"good":                   {plain("a", 1), ""},
		"zero":                   {node.Type{}, "make one with node.Of"},
		"no name":                {plain("", 1), "not a valid name of a node type"},
		"name with a space":      {plain("a b", 1), "not a valid name of a node type"},
		"name that is bad UTF-8": {plain("a\xff", 1), "not a valid name of a node type"},
		"long name":              {plain(strings.Repeat("a", 129), 1), "at most 128"},
		"version 0":              {plain("a", 0), "The version is 0: use at least 1"},
		"version -1":             {plain("a", -1), "use at least 1"},
		"nil function":           {node.Of[nobody, nobody]("a", 1, nil), "the function is nil: pass the function"},
		"nil configured":         {node.Configured[nobody, nobody, nobody]("a", 1, nil), "the function is nil"},
		"nil prepare":            {node.Raw(graph.NodeType{Name: "a", Version: 1}, nil), "the prepare function is nil"},
		"nil option":             {plain("a", 1, nil), "an option is nil: leave it out"},
		"accepts itself":         {plain("a", 2, node.Accepts(2, keep)), "accept versions from 1 up to the one before its own"},
		"accepts a newer":        {plain("a", 2, node.Accepts(3, keep)), "accepts version 3"},
		"accepts 0":              {plain("a", 2, node.Accepts(0, keep)), "accepts version 0"},
		"nil upgrade":            {plain("a", 2, node.Accepts(1, nil)), "the upgrade from version 1 is nil"},
		"accepts twice":          {plain("a", 2, node.Accepts(1, keep), node.Accepts(1, keep)), "accepts version 1 twice"},
		"accepts by hand":        {node.Raw(graph.NodeType{Name: "a", Version: 2, Accepts: []int{1}}, ready), "use the option node.Accepts"},
		"no timeout":             {plain("a", 1, node.Timeout(0)), "it must be positive"},
		"negative timeout":       {plain("a", 1, node.Timeout(-1)), "it must be positive"},
		"fine timeout":           {plain("a", 1, node.Timeout(time.Second+1)), "use whole microseconds"},
		"bad config schema":      {node.Raw(graph.NodeType{Name: "a", Version: 1, Config: value.Value(`{"type":"nope"}`)}, ready), "/config"},
		"bad read schema":        {node.Raw(graph.NodeType{Name: "a", Version: 1, Reads: map[string]graph.Port{"x": {Schema: value.Value(`{`)}}}, ready), "/reads/x"},
		"outside reference":      {node.Raw(graph.NodeType{Name: "a", Version: 1, Config: value.Value(`{"$ref":"https://example.com/s"}`)}, ready), "/config"},
		"bad write name":         {node.Raw(graph.NodeType{Name: "a", Version: 1, Writes: map[string]graph.Port{"$x": {}}}, ready), "/writes/$x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := node.NewRegistry().Add(tt.typ).Err()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var bad *node.TypeError
			if !errors.Is(err, node.ErrInvalidType) || !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
			if got := tt.typ.Err(); got == nil || got.Error() != err.Error() {
				t.Errorf("the type says %v, the registry %v", got, err)
			}
		})
	}
}

func TestErrJoinsEverythingAddMet(t *testing.T) {
	r := node.NewRegistry().Add(plain("", 0), plain("a", 1), plain("a", 1)).Add(plain("b", 1, node.Timeout(-1)))
	err := r.Err()
	for _, want := range []string{"/name", "/version", `"a" version 1: it is registered already`, `"b" version 1: the timeout is -1ns`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "belay:"); n != 1 || len(strings.Split(err.Error(), "\n")) != 4 {
		t.Errorf("%v says %d times whose it is, in other than 4 lines", err, n)
	}
	if !errors.Is(err, node.ErrInvalidType) {
		t.Errorf("%v is not ErrInvalidType", err)
	}
	if _, ok := r.NodeType("a", 1); !ok {
		t.Error("a good type was left out")
	}
	if _, ok := r.NodeType("b", 1); ok {
		t.Error("a bad type was registered")
	}
}

func TestNodeTypeIsTheNewestOrTheOneThatRunsTheVersion(t *testing.T) {
	r := (&node.Registry{}).Add(
		plain("a", 2), plain("a", 5, node.Accepts(4, keep), node.Accepts(3, keep), node.Accepts(1, keep)),
		plain("a", 4, node.Accepts(3, keep)), plain("b", 7),
	)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		version int
		want    int // 0: none
	}{
		{"a", 0, 5},
		{"a", 5, 5},
		{"a", 4, 4},
		{"a", 3, 5},
		{"a", 2, 2},
		{"a", 1, 5},
		{"a", 6, 0},
		{"a", -1, 0},
		{"b", 0, 7},
		{"b", 7, 7},
		{"b", 6, 0},
		{"c", 0, 0},
		{"", 0, 0},
	}
	m := r.Manifest()
	for _, tt := range tests {
		c, ok := r.NodeType(tt.name, tt.version)
		if c.Version != tt.want || ok != (tt.want != 0) {
			t.Errorf("NodeType(%q, %d) is version %d, %v, want %d", tt.name, tt.version, c.Version, ok, tt.want)
		}
		if tt.version < 0 {
			continue
		}
		if c, ok := m.NodeType(tt.name, tt.version); c.Version != tt.want || ok != (tt.want != 0) {
			t.Errorf("the manifest says version %d, %v of (%q, %d), want %d", c.Version, ok, tt.name, tt.version, tt.want)
		}
	}
}

func TestARawContractIsTheTypesOwn(t *testing.T) {
	c := graph.NodeType{
		Name: "a", Version: 1, Config: value.Value(`{ "type" : "object" }`),
		Reads: map[string]graph.Port{"x": {Schema: value.Value(`{ "type" : "string" }`)}},
	}
	typ := node.Raw(c, ready)
	c.Reads["y"] = graph.Port{}
	got := typ.Contract()
	if len(got.Reads) != 1 || string(got.Config) != `{"type":"object"}` || string(got.Reads["x"].Schema) != `{"type":"string"}` {
		t.Errorf("contract %+v", got)
	}
	if string(c.Config) != `{ "type" : "object" }` || string(c.Reads["x"].Schema) != `{ "type" : "string" }` {
		t.Errorf("the caller's contract was changed: %+v", c)
	}
}

func TestTheManifestIsDeterministicAndReadable(t *testing.T) {
	type config struct {
		Limit int    `json:"limit"`
		Note  string `json:"note,omitempty" jsonschema:"what to write on the receipt"`
	}
	type in struct {
		Card   string `json:"card"`
		Amount *int64 `json:"amount"`
	}
	make := func() *node.Registry {
		return node.NewRegistry().Add(
			node.Configured("charge", 3, func(context.Context, config, in) (map[string]any, error) { return nil, nil },
				node.Accepts(2, keep), node.Accepts(1, keep), node.Timeout(90*time.Second)),
			node.Of("audit", 1, func(context.Context, map[string]any) (struct{ At time.Time }, error) { panic("") }),
			plain("charge", 1),
			node.Raw(graph.NodeType{Name: "raw", Version: 1, Check: func(value.Value, []string, []string) error { return nil }}, ready),
		)
	}
	r := make()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(r.Manifest(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "manifest.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	read, err := graph.ParseManifest(got)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := json.MarshalIndent(make().Manifest(), "", "  ")
		if err != nil || string(again) != string(got) {
			t.Fatalf("manifest %s, %v", again, err)
		}
	}
	if again, err := json.MarshalIndent(read, "", "  "); err != nil || string(again) != string(got) {
		t.Errorf("read and written again: %s, %v", again, err)
	}
	empty, err := json.Marshal(node.NewRegistry().Manifest())
	if err != nil || string(empty) != `{"format":1,"nodes":[]}` {
		t.Errorf("empty manifest %s, %v", empty, err)
	}
}
