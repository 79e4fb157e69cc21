package belay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// The nodes of testdata/parcel.yaml.
type (
	item struct {
		Name  string `json:"name"`
		Grams int    `json:"grams"`
		Cents int    `json:"cents"`
	}
	parcel struct {
		Items []item `json:"items"`
	}
	weight struct {
		Grams int `json:"grams"`
	}
	price struct {
		Cents int `json:"cents"`
	}
	approval struct {
		Approved bool `json:"approved,omitempty"`
	}
	approveConfig struct {
		Question string `json:"question"`
	}
	label struct {
		Label string `json:"label"`
	}
)

// parcelNodes are real nodes: they compute, fail once, ask and refuse.
func parcelNodes(shipped map[string]string) *node.Registry {
	failed := false
	return node.NewRegistry().Add(
		node.Of("weigh", 1, func(_ context.Context, p parcel) (weight, error) {
			var w weight
			for _, i := range p.Items {
				w.Grams += i.Grams
			}
			return w, nil
		}),
		node.Of("price", 2, func(_ context.Context, p parcel) (price, error) {
			if !failed {
				failed = true
				return price{}, errors.New("the price list is away")
			}
			var c price
			for _, i := range p.Items {
				c.Cents += i.Cents
			}
			return c, nil
		}),
		node.Configured("approve", 1, func(ctx context.Context, c approveConfig, p price) (approval, error) {
			approved, ok, err := node.Answered[bool](ctx, "")
			if err != nil || ok {
				return approval{Approved: approved}, err
			}
			return approval{}, node.Ask(node.Question{Prompt: map[string]any{"question": c.Question, "cents": p.Cents}, Schema: []byte(`{"type": "boolean"}`)})
		}),
		node.Of("ship", 1, func(ctx context.Context, w weight) (label, error) {
			l := fmt.Sprintf("%d g", w.Grams)
			shipped[node.IdempotencyKey(ctx)] = l
			return label{l}, nil
		}),
	)
}

// From a YAML file to the output, through a retry, an interrupt and its resolution.
func TestParcelFromItsGraphFileToItsOutput(t *testing.T) {
	ctx := t.Context()
	clock := lifecycle.NewVirtualClock(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC))
	store := memory.New(memory.Options{Now: clock.Now})
	shipped := map[string]string{}
	engine, err := belay.New(belay.Config{Backend: store, Nodes: parcelNodes(shipped), Clock: clock, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := belay.ReadGraph("testdata/parcel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		t.Fatal(err)
	}
	input := parcel{Items: []item{{"book", 450, 2000}, {"pen", 20, 150}}}
	r, err := engine.Start(ctx, ref, input, belay.StartOptions{Key: "order-42"})
	if err != nil {
		t.Fatal(err)
	}
	twin, err := engine.Start(ctx, ref, input, belay.StartOptions{Key: "order-42"})
	if err != nil || !twin.Existing || twin.ID != r.ID {
		t.Fatalf("the second start: %+v, %v", twin, err)
	}

	parked, err := engine.Drain(ctx, belay.DrainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if parked.Next.IsZero() {
		t.Fatalf("the failed price is not parked for its retry: %+v", parked)
	}
	clock.AdvanceTo(parked.Next)
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		t.Fatal(err)
	}

	asked, err := engine.Await(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	open := asked.OpenInterrupts()
	if asked.Status != run.Waiting || len(open) != 1 || string(open[0].Question) != `{"cents":2150,"question":"Ship it?"}` {
		t.Fatalf("the run is %s and asks %+v", asked.Status, open)
	}
	if _, err := engine.Resolve(ctx, r.ID, open[0].ID, "perhaps"); !errors.Is(err, run.ErrInvalidAnswer) {
		t.Errorf("an answer that is no boolean: %v", err)
	}
	if _, err := engine.Resolve(ctx, r.ID, open[0].ID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		t.Fatal(err)
	}

	done, err := engine.Await(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if done.Status != run.Done || string(done.Output) != `{"grams":470,"label":"470 g"}` {
		t.Errorf("the run is %s with %s (%+v)", done.Status, done.Output, done.Failure)
	}
	if len(shipped) != 1 || shipped[r.ID+":4:ship"] != "470 g" {
		t.Errorf("shipped %v, want once under the task's key", shipped)
	}
	page, err := engine.Events(ctx, r.ID, backend.EventQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range page.Events {
		if e.Node != "" || e.Interrupt != "" {
			told = append(told, strings.TrimSpace(fmt.Sprintf("%s %s", e.Type, e.Node)))
		}
	}
	want := "node_failed price; node_completed weigh; node_completed price; interrupt_requested approve; interrupt_resolved approve; node_completed approve; node_completed ship"
	if got := strings.Join(told, "; "); got != want {
		t.Errorf("the history tells\n%s, want\n%s", got, want)
	}
}

func TestReadGraphReadsJSONAndYAMLAndSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, good := range []string{
		write("a.json", `{"id": "a", "nodes": {}, "edges": {}}`),
		write("a.yaml", "id: a\nnodes: {}\nedges: {}\n"),
		write("a.YML", "id: a\nnodes: {}\nedges: {}\n"),
	} {
		if doc, err := belay.ReadGraph(good); err != nil || doc.ID != "a" {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, good := range []string{`{"id": "a", "nodes": {}, "edges": {}}`, "id: a\nnodes: {}\nedges: {}\n"} {
		if doc, err := belay.ParseGraph([]byte(good)); err != nil || doc.ID != "a" {
			t.Errorf("%s: %v", good, err)
		}
	}
	_, err := belay.ReadGraph(filepath.Join(dir, "none.yaml"))
	if !errors.Is(err, belay.ErrUnreadableGraph) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	_, err = belay.ReadGraph(write("bad.json", `{"id": "a", "nodes": {}, "edges": {}, "colour": "red"}`))
	var found belay.Diagnostics
	if !errors.Is(err, belay.ErrUnreadableGraph) || !errors.As(err, &found) || !strings.Contains(err.Error(), "/colour") || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("an unknown member: %v", err)
	}
}
