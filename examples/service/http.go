package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

const (
	maxBody = 64 << 10
	maxWait = 5 * time.Second // below requestTimeout
)

// handler is the whole interface over HTTP.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.answer(s.postOrder))
	mux.Handle("GET /orders", s.answer(s.getOrders))
	mux.Handle("GET /orders/{id}", s.answer(s.getOrder))
	mux.Handle("POST /orders/{id}/approve", s.answer(s.postApprove))
	mux.Handle("POST /orders/{id}/cancel", s.answer(s.postCancel))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// request is what every handler is given.
type request struct {
	*http.Request
	// tenant owns what the request is about. Here a header says so; in earnest it is whoever
	// the request's credentials belong to.
	tenant string
}

// reply is what a handler answers with. The status defaults to 200.
type reply struct {
	status   int
	location string
	body     any
}

// answer makes a handler of a function. Every error becomes a status code in one place.
func (s *service) answer(handle func(context.Context, request) (reply, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		out, err := reply{}, error(nil)
		switch tenant := r.Header.Get("X-Tenant"); {
		case tenant == "":
			err = &badRequest{"X-Tenant", "the header is missing: it says whose orders these are"}
		case s.engine.Health().Err != nil:
			err = errAway // nobody has to wait to find out what the engine knows
		default:
			out, err = handle(ctx, request{r, tenant})
		}
		if err != nil {
			writeProblem(ctx, w, err)
			return
		}
		if out.location != "" {
			w.Header().Set("Location", out.location)
		}
		writeJSON(w, max(out.status, http.StatusOK), "application/json", out.body)
	})
}

func (s *service) postOrder(ctx context.Context, r request) (reply, error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return reply{}, &badRequest{"Idempotency-Key", "the header is missing: make one up for each order, and send it again with each repetition"}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return reply{}, err
	}
	placed, err := s.place(ctx, r.tenant, key, body)
	if err != nil {
		return reply{}, err
	}
	status := http.StatusCreated
	if placed.Existing {
		status = http.StatusOK
	}
	out, err := s.show(ctx, r, placed.ID, 0)
	out.status, out.location = status, "/orders/"+placed.ID
	return out, err
}

func (s *service) getOrder(ctx context.Context, r request) (reply, error) {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return reply{}, &badRequest{"wait", "it is how long to wait until the order is finished or asks, as in 5s"}
		}
	}
	return s.show(ctx, r, r.PathValue("id"), min(wait, maxWait))
}

func (s *service) postApprove(ctx context.Context, r request) (reply, error) {
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	if err := s.decide(ctx, r.tenant, id, answer); err != nil {
		return reply{}, err
	}
	return s.show(ctx, r, id, 0)
}

func (s *service) postCancel(ctx context.Context, r request) (reply, error) {
	id := r.PathValue("id")
	if _, err := s.withdraw(ctx, r.tenant, id, "withdrawn by the customer"); err != nil {
		return reply{}, err
	}
	return s.show(ctx, r, id, 0)
}

func (s *service) show(ctx context.Context, r request, id string, wait time.Duration) (reply, error) {
	o, current, err := s.see(ctx, r.tenant, id, wait)
	if err != nil {
		return reply{}, err
	}
	return reply{body: viewOf(o, current)}, nil
}

func (s *service) getOrders(ctx context.Context, r request) (reply, error) {
	q := backend.Query{GraphID: s.order.ID, Limit: 50}
	form := r.URL.Query()
	for _, status := range form["status"] {
		q.Statuses = append(q.Statuses, run.Status(status))
	}
	var err error
	if text := form.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil {
			return reply{}, &badRequest{"limit", fmt.Sprintf("it is a number from 1 to %d", backend.MaxLimit)}
		}
	}
	if err := q.Before.UnmarshalText([]byte(form.Get("before"))); err != nil {
		return reply{}, &badRequest{"before", "it is what the page before this one gave"}
	}
	page, err := s.engine.For(r.tenant).List(ctx, q)
	if err != nil {
		return reply{}, err
	}
	rows, err := readOrders(ctx, s.db, r.tenant, idsOf(page))
	if err != nil {
		return reply{}, err
	}
	return reply{body: listOf(page, rows)}, nil
}

// ready says whether callers should be sent here: the engine drives orders, and the database answers.
func (s *service) ready(w http.ResponseWriter, _ *http.Request) {
	h := s.engine.Health()
	why := ""
	switch {
	case s.stopping.Err() != nil || !h.Running:
		why = "it is not serving"
	case h.Err != nil:
		why = "the database does not answer"
	case h.Claimed.IsZero():
		why = "the database has not answered yet"
	}
	if why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "ok, driving %d\n", h.Held)
}

func writeJSON(w http.ResponseWriter, status int, kind string, body any) {
	raw, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
}
