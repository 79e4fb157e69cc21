package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/graph"
)

// release is what this build calls itself.
const release = "next"

//go:embed order.yaml
var orderYAML []byte

// service is what the HTTP handlers call.
type service struct {
	engine *belay.Engine
	ledger string
	order  belay.GraphRef // the version that this release starts
}

// publish publishes the graph of this release.
func (s *service) publish(ctx context.Context) error {
	doc, err := graph.ParseYAML(orderYAML)
	if err != nil {
		return err
	}
	s.order, err = s.engine.Publish(ctx, doc)
	return err
}

// handler is the whole interface over HTTP.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.start)
	mux.HandleFunc("POST /orders/{id}/approve", s.approve)
	mux.HandleFunc("POST /orders/{id}/migrate", s.migrate)
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.nodes().Manifest()) })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// request is an order. The same key again is the same order.
type request struct {
	Key   string          `json:"key"`
	Graph string          `json:"graph"` // the hash of an older version; empty: this release's
	Input json.RawMessage `json:"input"`
}

// placed is the order that was started.
type placed struct {
	Run   string `json:"run"`
	Graph string `json:"graph"`
}

// keyWindow is for how long a key is remembered at least.
const keyWindow = time.Hour

func (s *service) start(w http.ResponseWriter, r *http.Request) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ref := s.order
	ref.Hash = cmp.Or(in.Graph, ref.Hash)
	started, err := s.engine.Start(r.Context(), ref, in.Input, belay.StartOptions{Key: in.Key, Window: keyWindow})
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, placed{Run: started.ID, Graph: started.Graph.Hash})
}

// approve answers the question of an order. Doing it again is success.
func (s *service) approve(w http.ResponseWriter, r *http.Request) {
	if _, err := s.engine.Resolve(r.Context(), r.PathValue("id"), approvalID, true); err != nil && !errors.Is(err, belay.ErrAlreadyResolved) && !errors.Is(err, belay.ErrInactiveRun) {
		refuse(w, err)
		return
	}
	reply(w, nil)
}

// migrate moves an order to this release's version of the graph.
func (s *service) migrate(w http.ResponseWriter, r *http.Request) {
	moved, err := s.engine.Migrate(r.Context(), r.PathValue("id"), s.order, belay.MigrateOptions{})
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, placed{Run: moved.ID, Graph: moved.Graph.Hash})
}

// ready says whether the engine drives orders.
func (s *service) ready(w http.ResponseWriter, _ *http.Request) {
	if h := s.engine.Health(); !h.Running || h.Err != nil || h.Claimed.IsZero() {
		http.Error(w, "it does not serve yet", http.StatusServiceUnavailable)
		return
	}
	reply(w, nil)
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if errors.Is(err, belay.ErrInvalidInput) {
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // whoever asked may be gone
}
