// The program prometheus serves the metrics of an engine to Prometheus: OpenTelemetry's SDK reads what
// belay tells through lifecycle/otel, and its exporter is scraped at /metrics.
//
//	go run . -listen localhost:2112
//	curl localhost:2112/metrics
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/lifecycle/otel"
	"github.com/belay-run/belay/node"
)

const order = `
id: order
inputs: {amount: {schema: {type: integer}, required: true}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge, retry: {max_attempts: 3, backoff: {initial: 10ms}}}}
edges: {begin: {from: $start, to: charge}, end: {from: charge, to: $finish}}
outputs: {receipt: {from: receipt}}
`

type (
	payment struct {
		Amount int `json:"amount"`
	}
	receipt struct {
		Receipt string `json:"receipt"`
	}
)

// charge fails once for every order, so that there is something to see.
func charge(ctx context.Context, p payment) (receipt, error) {
	if call, _ := node.FromContext(ctx); call.Attempt == 1 {
		return receipt{}, errors.New("the card reader did not answer")
	}
	return receipt{Receipt: fmt.Sprintf("paid %d", p.Amount)}, nil
}

// newEngine makes an engine whose metrics are read through the handler.
func newEngine(ctx context.Context) (*belay.Engine, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	observer, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		return nil, nil, err
	}
	engine, err := belay.New(belay.Config{
		Backend:   memory.New(memory.Options{}),
		Nodes:     node.NewRegistry().Add(node.Of("charge", 1, charge)),
		Observers: []lifecycle.Observer{observer},
	})
	if err != nil {
		return nil, nil, err
	}
	doc, err := graph.ParseYAML([]byte(order))
	if err != nil {
		return nil, nil, err
	}
	if _, err := engine.Publish(ctx, doc); err != nil {
		return nil, nil, err
	}
	return engine, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

func serve(ctx context.Context, listen string) error {
	engine, metrics, err := newEngine(ctx)
	if err != nil {
		return err
	}
	http.Handle("/metrics", metrics)
	server := &http.Server{Addr: listen, ReadHeaderTimeout: 10 * time.Second}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		if err := engine.Run(ctx); err != nil {
			log.Print(err)
		}
	})
	work.Go(func() { // orders
		for amount := 1; ctx.Err() == nil; amount++ {
			if _, err := engine.Start(ctx, belay.GraphRef{ID: "order"}, payment{amount}, belay.StartOptions{}); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func main() {
	listen := flag.String("listen", "localhost:2112", "where to serve /metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *listen); err != nil {
		log.Fatal(err)
	}
}
