package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func TestNewExplainsEveryProblemAtOnce(t *testing.T) {
	good := func() lifecycle.Config {
		return lifecycle.Config{Backend: memory.New(memory.Options{}), Nodes: node.NewRegistry()}
	}
	if _, err := lifecycle.New(good()); err != nil {
		t.Fatalf("a minimal configuration is refused: %v", err)
	}
	for _, tt := range []struct {
		problem string
		spoil   func(*lifecycle.Config)
		want    []string
	}{
		{"no backend", func(c *lifecycle.Config) { c.Backend = nil }, []string{"Backend is nil"}},
		{"a nil store", func(c *lifecycle.Config) { c.Backend = (*memory.Store)(nil) }, []string{"Backend is nil"}},
		{"no nodes", func(c *lifecycle.Config) { c.Nodes = nil }, []string{"Nodes is nil"}},
		{"a nil clock", func(c *lifecycle.Config) { c.Clock = (*lifecycle.VirtualClock)(nil) }, []string{"Clock holds a nil pointer"}},
		{"a short TTL", func(c *lifecycle.Config) { c.TTL = time.Millisecond }, []string{"TTL is 1ms"}},
		{
			"negative durations",
			func(c *lifecycle.Config) {
				c.AbandonBackoff, c.NodeGrace, c.ShutdownTimeout, c.PollInterval, c.MaxNodeTimeout = -1, -1, -1, -1, -1
			},
			[]string{"AbandonBackoff is", "NodeGrace is", "ShutdownTimeout is", "PollInterval is", "MaxNodeTimeout is"},
		},
		{
			"negative counts",
			func(c *lifecycle.Config) {
				c.MaxAttempts, c.MaxAbandons, c.Concurrency, c.CommitBudget = -1, -1, -1, -1
			},
			[]string{"MaxAttempts is", "MaxAbandons is", "Concurrency is", "CommitBudget is"},
		},
		{"negative limits", func(c *lifecycle.Config) { c.Limits = value.Limits{Document: -1, EventPayload: -1, Value: -1} }, []string{"Limits.Document is", "Limits.EventPayload is", "Limits.Value is"}},
		{"a value that fits no document", func(c *lifecycle.Config) { c.Limits = value.Limits{Document: 10, Value: 20} }, []string{"Limits.Value (20) is above Limits.Document (10)"}},
		{
			"limits that do not hold", func(c *lifecycle.Config) { c.OwnerCap, c.NodeLimits = -1, map[string]int{"none": 0} },
			[]string{"OwnerCap is -1", `NodeLimits["none"] is 0`, `NodeLimits names "none"`},
		},
		{"features that the backend lacks", func(c *lifecycle.Config) {
			c.Backend = without(newMemory(nil), func(f *backend.Features) { *f = backend.Features{} })
			c.OwnerCap, c.Graphs, c.Retention = 1, []claim.GraphFilter{{ID: "g"}}, &lifecycle.Retention{After: time.Hour}
		}, []string{"OwnerCap needs", "Graphs needs", "Retention needs"}},
		{"a filter by no graph", func(c *lifecycle.Config) { c.Graphs = []claim.GraphFilter{{}} }, []string{"Graphs cannot be claimed by"}},
		{"a retention of nothing", func(c *lifecycle.Config) {
			c.Retention = &lifecycle.Retention{Every: -1, Batch: -1, Statuses: []run.Status{run.Running}}
		}, []string{"Retention.After is", "Retention.Every is", "Retention.Batch is", "Retention.Statuses holds"}},
		{"an unknown fairness", func(c *lifecycle.Config) { c.Fairness = claim.Interleave + 1 }, []string{"Fairness is"}},
		{
			"the registry's errors and others",
			func(c *lifecycle.Config) {
				c.Nodes = node.NewRegistry().Add(node.Type{})
				c.TTL = -1
			},
			[]string{"Nodes holds types", "TTL is"},
		},
	} {
		t.Run(tt.problem, func(t *testing.T) {
			cfg := good()
			tt.spoil(&cfg)
			e, err := lifecycle.New(cfg)
			var bad *lifecycle.ConfigError
			if e != nil || !errors.As(err, &bad) || !errors.Is(err, lifecycle.ErrInvalidConfig) {
				t.Fatalf("New answers %v, %v; want a *ConfigError", e, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
			if len(bad.Problems) != len(tt.want) {
				t.Errorf("%d problems are told, want %d:\n%v", len(bad.Problems), len(tt.want), err)
			}
		})
	}
}

func TestConfigErrorUnwrapsTheRegistrys(t *testing.T) {
	nodes := node.NewRegistry().Add(node.Type{})
	_, err := lifecycle.New(lifecycle.Config{Backend: memory.New(memory.Options{}), Nodes: nodes})
	if !errors.Is(err, node.ErrInvalidType) {
		t.Errorf("%v does not match the registry's error", err)
	}
	if n := strings.Count(err.Error(), "belay:"); n != 1 {
		t.Errorf("%v says %d times whose it is", err, n)
	}
}
