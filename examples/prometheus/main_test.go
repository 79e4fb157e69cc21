package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/lifecycle/otel"
	"github.com/belay-run/belay/run"
)

// What Prometheus gets: every metric that had something to tell, under its name, with its unit and its
// attributes.
func TestAScrapeTellsWhatTheEngineDid(t *testing.T) {
	engine, metrics, err := newEngine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(metrics)
	defer server.Close()
	over := make(chan error, 1)
	go func() { over <- engine.Run(t.Context()) }()
	for amount := range 3 {
		r, err := engine.Start(t.Context(), belay.GraphRef{ID: "order"}, payment{amount}, belay.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = engine.Await(t.Context(), r.ID); err != nil || r.Status != run.Done {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if err := engine.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}

	client := &http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(server.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, line := range []string{
		`belay_starts_total{belay_graph_id="order",belay_start_outcome="stored",.*} 3`,
		`belay_commits_total{belay_checkpoint_type="run_initialized",belay_graph_id="order",.*} 3`,
		`belay_commits_total{belay_checkpoint_type="retry_scheduled",belay_graph_id="order",.*} 3`,
		`belay_commits_total{belay_checkpoint_type="run_completed",belay_graph_id="order",.*} 3`,
		`belay_claim_active{belay_graph_id="order",.*} 0`,
		`belay_node_duration_seconds_count{belay_graph_id="order",belay_node_outcome="completed",belay_node_type="charge",.*} 3`,
		`belay_node_duration_seconds_count{belay_graph_id="order",belay_node_outcome="retry",belay_node_type="charge",.*} 3`,
		`belay_queue_age_seconds_count{belay_graph_id="order",.*} [1-6]`,
		`belay_commit_duration_seconds_count{belay_checkpoint_type="run_completed",.*} 3`,
		`belay_commit_group_size_count{.*} 6`,
	} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(page) {
			t.Errorf("no line %s", line)
		}
	}
	// Nothing is scraped that is not listed.
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (belay_\w+) (\w+)$`).FindAllStringSubmatch(page, -1) {
		listed := false
		for _, metric := range otel.Metrics() {
			listed = listed || strings.HasPrefix(m[1], strings.ReplaceAll(metric.Name, ".", "_"))
		}
		if !listed {
			t.Errorf("%s is scraped and not listed", m[1])
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
