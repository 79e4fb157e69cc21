//go:build unix

// The program tracing shows one run as one trace, although the process that begins it is killed in
// the middle of a node and another one goes on:
//
//	go run .
//
// It starts itself twice. Both processes work on one SQLite file and export their spans to one
// file of JSON lines, from which the tree is drawn.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/lifecycle/otel"
	"github.com/belay-run/belay/node"
)

const order = `
id: order
nodes: {reserve: {use: reserve}, charge: {use: charge}}
edges:
  begin: {from: $start, to: reserve}
  next:  {from: reserve, to: charge}
  end:   {from: charge, to: $finish}
`

// orderID is the run's.
const orderID = "order-1"

// The environment of a process that serves.
const (
	envFolder = "BELAY_TRACING_FOLDER"
	envName   = "BELAY_TRACING_NAME"
)

// The processes. The first starts the order and never gets over its charge.
const (
	first  = "first"
	second = "second"
)

// charging is what the first process says when it is to be killed.
const charging = "charging"

type none struct{}

func nodes(process string) *node.Registry {
	return node.NewRegistry().Add(
		node.Of("reserve", 1, func(context.Context, none) (none, error) { return none{}, nil }),
		node.Of("charge", 1, func(ctx context.Context, _ none) (none, error) {
			if process == first {
				fmt.Println(charging)
				<-ctx.Done()
				return none{}, context.Cause(ctx)
			}
			return none{}, nil
		}),
	)
}

// serve is one process. It ends when the order has.
func serve(ctx context.Context, folder, process string) error {
	file, err := os.OpenFile(filepath.Join(folder, "spans.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(file))
	if err != nil {
		return err
	}
	provider := trace.NewTracerProvider(
		trace.WithSyncer(exporter), // each span as it ends: this process may not get to a flush
		trace.WithResource(resource.NewSchemaless(attribute.String("service.instance.id", process))),
	)
	observer, err := otel.New(otel.Options{TracerProvider: provider})
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, filepath.Join(folder, "orders.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	engine, err := belay.New(belay.Config{
		Backend: store, Nodes: nodes(process), Observers: []lifecycle.Observer{observer},
		TTL: time.Second, PollInterval: 100 * time.Millisecond, // so that the second process need not wait long
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	if process == first {
		doc, err := graph.ParseYAML([]byte(order))
		if err != nil {
			return err
		}
		ref, err := engine.Publish(ctx, doc)
		if err != nil {
			return err
		}
		if _, err := engine.Start(ctx, ref, nil, belay.StartOptions{ID: orderID}); err != nil {
			return err
		}
	}
	over := make(chan error, 1)
	go func() { over <- engine.Run(ctx) }()
	if _, err := engine.Await(ctx, orderID); err != nil {
		return err
	}
	if err := engine.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-over; err != nil {
		return err
	}
	return provider.Shutdown(ctx)
}

// demonstrate lets the first process begin, kills it in the middle of a node, and lets the second go on.
// It answers the spans of both.
func demonstrate(ctx context.Context, folder string) ([]span, error) {
	if err := os.Mkdir(folder, 0o700); err != nil { // as belay wants the folder of its file
		return nil, err
	}
	doomed, err := process(ctx, folder, first)
	if err != nil {
		return nil, err
	}
	says, err := doomed.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := doomed.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != charging {
		_ = doomed.Process.Kill()
		return nil, fmt.Errorf("the first process said %q: %w", line, err)
	}
	if err := doomed.Process.Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	_ = doomed.Wait()

	heir, err := process(ctx, folder, second)
	if err != nil {
		return nil, err
	}
	if err := heir.Run(); err != nil {
		return nil, fmt.Errorf("the second process: %w", err)
	}
	file, err := os.Open(filepath.Join(folder, "spans.jsonl"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readSpans(file)
}

func process(ctx context.Context, folder, name string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envFolder+"="+folder, envName+"="+name)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

func show(out io.Writer) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	folder, err := os.MkdirTemp("", "tracing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	spans, err := demonstrate(ctx, filepath.Join(folder, "data"))
	if err != nil {
		return err
	}
	draw(out, spans)
	return nil
}

// child serves, when this process is one of those that demonstrate has started.
func child() (is bool, err error) {
	folder := os.Getenv(envFolder)
	if folder == "" {
		return false, nil
	}
	return true, serve(context.Background(), folder, os.Getenv(envName))
}

func main() {
	is, err := child()
	if !is {
		err = show(os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}
