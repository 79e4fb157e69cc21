package main

import (
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
const release = "0.1"

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
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.nodes().Manifest()) })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// request is an order. The same key again is the same order.
type request struct {
	Key   string          `json:"key"`
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
	started, err := s.engine.Start(r.Context(), s.order, in.Input, belay.StartOptions{Key: in.Key, Window: keyWindow})
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
