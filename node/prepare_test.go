package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

type strict struct {
	Limit int `json:"limit"`
}

func limited(name string, version int, opts ...node.Option) node.Type {
	return node.Configured(name, version, func(_ context.Context, c strict, _ nobody) (struct{ Limit int }, error) {
		return struct{ Limit int }{c.Limit}, nil
	}, opts...)
}

func TestPrepareReportsEveryReason(t *testing.T) {
	type loose struct {
		Limit any `json:"limit"`
		Old   any `json:"old,omitempty"`
	}
	old := func(name string, version int, opts ...node.Option) node.Type {
		return node.Configured(name, version, func(context.Context, loose, nobody) (struct{ Limit int }, error) { panic("") }, opts...)
	}
	type reading struct{ Card string }
	publisher := node.NewRegistry().Add(
		plain("gone", 1), plain("newer", 9), plain("slow", 1), plain("slower", 1, node.Timeout(time.Hour)), plain("bare", 1),
		old("config", 1), old("upgraded", 1), old("broken", 1), old("panics", 1), old("check", 1), old("prepare", 1), old("nothing", 1), old("late", 1),
		node.Of("reads", 1, func(context.Context, nobody) (nobody, error) { return nobody{}, nil }),
	)
	checked := graph.NodeType{Name: "check", Version: 1, Config: value.Value(`{}`), Check: func(config value.Value, reads, writes []string) error {
		return fmt.Errorf("%s %v %v is no good", config, reads, writes)
	}}
	here := node.NewRegistry().Add(
		plain("newer", 1), plain("newer", 4, node.Accepts(3, keep)), plain("slow", 1), plain("slower", 1, node.Timeout(time.Minute)),
		limited("config", 1),
		limited("upgraded", 2, node.Accepts(1, func(c value.Value) (value.Value, error) { return value.Value(`{"limit":"ten"}`), nil })),
		limited("broken", 2, node.Accepts(1, func(c value.Value) (value.Value, error) { return nil, errors.New("cannot") })),
		limited("panics", 2, node.Accepts(1, func(c value.Value) (value.Value, error) { panic("oh") })),
		node.Raw(checked, ready),
		node.Raw(graph.NodeType{Name: "prepare", Version: 1, Config: value.Value(`{}`)}, func(node.Site) (node.Func, error) { return nil, errors.New("not here") }),
		node.Raw(graph.NodeType{Name: "nothing", Version: 1, Config: value.Value(`{}`)}, func(node.Site) (node.Func, error) { return nil, nil }),
		limited("late", 2, node.Accepts(1, func(c value.Value) (value.Value, error) { return value.Value(`{"limit":`), nil })),
		plain("bare", 1),
		node.Of("reads", 1, func(context.Context, reading) (nobody, error) { return nobody{}, nil }),
	)
	if err := errors.Join(publisher.Err(), here.Err()); err != nil {
		t.Fatal(err)
	}
	d := oneNode("gone", 1, "", nil, []string{"Limit"})
	delete(d.Nodes, "n")
	delete(d.Edges, "e")
	delete(d.Edges, "f")
	for _, use := range []string{"gone", "newer", "slow", "slower", "bare", "config", "upgraded", "broken", "panics", "check", "prepare", "nothing", "late", "reads"} {
		n := graph.Node{Use: use, Writes: map[string]string{}}
		if c, _ := publisher.NodeType(use, 0); c.Config != nil {
			n.Config = value.Value(`{"limit":"x"}`)
			n.Writes["Limit"] = "out_Limit"
		}
		if use == "slow" || use == "slower" {
			n.Timeout = graph.Duration(10 * time.Minute)
		}
		d.Nodes[use] = n
		d.Edges["to_"+use] = graph.Edge{From: graph.Sources{graph.Start}, To: use}
	}
	c := publish(t, d, publisher)

	_, err := here.Prepare(c, 5*time.Minute)
	var bad *node.IncompatibleError
	if !errors.Is(err, node.ErrIncompatible) || !errors.As(err, &bad) || bad.Graph != c.Ref() {
		t.Fatalf("error %v, want *IncompatibleError", err)
	}
	type reason struct{ Node, Code, Says string }
	want := []reason{
		{"broken", "invalid_config", "upgrading it from version 1: cannot"},
		{"check", "invalid_config", `{"limit":"x"} [] [Limit] is no good`},
		{"config", "invalid_config", "at /limit"},
		{"gone", "unknown_node_type", "is not registered: add it to the registry"},
		{"late", "invalid_config", "upgrading it from version 1: belay: invalid value"},
		{"newer", "unsupported_version", `version 9 of the node type "newer" is not supported, only 1, 3, 4`},
		{"nothing", "invalid_config", "preparing it gave no function"},
		{"panics", "invalid_config", "preparing it panicked: oh"},
		{"prepare", "invalid_config", "not here"},
		{"reads", "unsupported_version", `requires "Card", which the graph's node does not read`},
		{"slow", "timeout_above_maximum", "its timeout of 10m0s is above this host's maximum of 5m0s"},
		{"slower", "timeout_above_maximum", "above this host's maximum"},
		{"slower", "timeout_above_maximum", `above the maximum of 1m0s of the node type "slower"`},
		{"upgraded", "invalid_config", "at /limit"},
	}
	var got []reason
	for i, r := range bad.Reasons {
		says := r.Message
		if i < len(want) && strings.Contains(says, want[i].Says) {
			says = want[i].Says
		}
		got = append(got, reason{r.Node, r.Code, says})
		if r.Use != r.Node || r.Version < 1 || !strings.Contains(err.Error(), r.Message) {
			t.Errorf("reason %+v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestAnAcceptedVersionRunsOnItsUpgradedConfig(t *testing.T) {
	publisher := node.NewRegistry().Add(node.Configured("charge", 2, func(context.Context, struct {
		Max int `json:"max"`
	}, nobody,
	) (struct{ Limit int }, error) {
		panic("")
	}))
	c := publish(t, oneNode("charge", 0, `{"max":7}`, nil, []string{"Limit"}), publisher)
	upgrades := 0
	here := node.NewRegistry().Add(limited("charge", 3, node.Accepts(2, func(config value.Value) (value.Value, error) {
		upgrades++
		return value.Value(strings.Replace(string(config), `"max":`, ` "limit" : `, 1)), nil
	})))
	p, err := here.Prepare(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, err := p.Run(t.Context(), &node.Call{Node: "n", Writes: []string{"Limit"}})
		if err != nil || text(r.Update()) != `{"Limit":7}` {
			t.Errorf("result %+v, %v", r, err)
		}
	}
	if upgrades != 1 {
		t.Errorf("upgraded %d times", upgrades)
	}
}

func TestAnAbsentConfigIsAnEmptyOne(t *testing.T) {
	type optional struct {
		Limit *int `json:"limit"`
	}
	typ := node.Configured("t", 1, func(_ context.Context, c optional, _ nobody) (struct{ None bool }, error) {
		return struct{ None bool }{c.Limit == nil}, nil
	})
	if got := text(place(t, typ, "", nil).run(t, t.Context()).Update()); got != `{"None":true}` {
		t.Errorf("update %s", got)
	}
	none := node.Configured("t", 1, func(context.Context, nobody, nobody) (nobody, error) { return nobody{}, nil })
	if r := place(t, none, "", nil).run(t, t.Context()); r.Kind() != run.ResultCompleted {
		t.Errorf("result %+v", r)
	}
}

func TestANodeWithoutATimeoutIsAdmitted(t *testing.T) {
	r := node.NewRegistry().Add(plain("t", 1))
	c := publish(t, oneNode("t", 0, "", nil, nil), r)
	if _, err := r.Prepare(c, time.Nanosecond); err != nil {
		t.Error(err)
	}
}

func TestAGraphWithoutAConfigForATypeThatTakesNone(t *testing.T) {
	publisher := node.NewRegistry().Add(limited("t", 1))
	here := node.NewRegistry().Add(plain("t", 1))
	_, err := here.Prepare(publish(t, oneNode("t", 0, `{"limit":1}`, nil, []string{"Limit"}), publisher), 0)
	if !errors.Is(err, node.ErrIncompatible) || !strings.Contains(err.Error(), "it takes none: leave the config out") {
		t.Errorf("error %v", err)
	}
}

func TestPrepareRefusesNoGraph(t *testing.T) {
	if _, err := node.NewRegistry().Prepare(nil, 0); !errors.Is(err, node.ErrNilArgument) {
		t.Errorf("error %v", err)
	}
}

func TestASiteSaysWhatTheGraphBinds(t *testing.T) {
	var got node.Site
	typ := node.Raw(graph.NodeType{Name: "t", Version: 1, OpenReads: true, OpenWrites: true, Config: value.Value(`{}`)}, func(s node.Site) (node.Func, error) {
		got = s
		return ready(s)
	})
	place(t, typ, `{"b":1,"a":1.0}`, map[string]string{"z": "1", "y": "2"}, "w", "v")
	want := node.Site{Node: "n", Config: value.Value(`{"a":1.0,"b":1}`), Reads: []string{"y", "z"}, Writes: []string{"v", "w"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("site (-want +got):\n%s", diff)
	}
}
