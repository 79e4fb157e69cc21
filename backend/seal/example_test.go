package seal_test

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/seal"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
)

const greeting = `
id: greeting
inputs: {name: {schema: {type: string}, required: true}}
fields: {text: {schema: {type: string}}}
nodes: {greet: {use: greet}}
edges: {start: {from: $start, to: greet}, end: {from: greet, to: $finish}}
outputs: {text: {from: text}}
`

type person struct {
	Name string `json:"name"`
}

type words struct {
	Text string `json:"text"`
}

// greet runs the graph for one person on a file whose store has a Sealer.
func greet(path string, s backend.Sealer, id, name string) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, path, sqlite.Options{Sealer: s, SharedDirectory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	engine, err := belay.New(belay.Config{
		Backend: store, Logger: slog.New(slog.DiscardHandler),
		Nodes: node.NewRegistry().Add(node.Of("greet", 1, func(_ context.Context, p person) (words, error) {
			return words{"Hello, " + p.Name}, nil
		})),
	})
	if err != nil {
		log.Fatal(err)
	}
	doc, err := graph.ParseYAML([]byte(greeting))
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Start(ctx, ref, person{name}, belay.StartOptions{ID: id}); err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		log.Fatal(err)
	}
}

// output prints what a run came to, as a store with this Sealer sees it.
func output(path string, s backend.Sealer, id string) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, path, sqlite.Options{Sealer: s, SharedDirectory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	d, err := store.FetchRun(ctx, backend.System(), id)
	if sealed, ok := errors.AsType[*backend.SealedError](err); ok {
		fmt.Printf("%s: sealed with %s\n", id, sealed.Key)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", id, d.Output)
}

// A key is rotated in two steps: every process learns the next key, and then seals with it. What
// was sealed with the key before opens as long as that key is there.
func ExampleAESGCM() {
	dir, err := os.MkdirTemp("", "seal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "greetings.db")

	// In earnest: 32 random bytes each, from where secrets are kept.
	spring, summer := bytes.Repeat([]byte{1}, seal.KeySize), bytes.Repeat([]byte{2}, seal.KeySize)
	before, err := seal.AESGCM(map[string][]byte{"spring": spring}, "spring")
	if err != nil {
		log.Fatal(err)
	}
	greet(path, before, "first", "Ada")
	after, err := seal.AESGCM(map[string][]byte{"spring": spring, "summer": summer}, "summer")
	if err != nil {
		log.Fatal(err)
	}
	greet(path, after, "second", "Grace")

	output(path, after, "first")
	output(path, after, "second")
	output(path, before, "second")
	output(path, nil, "first")
	stored, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("in the file:", bytes.Contains(stored, []byte("Ada")))
	// Output:
	// first: {"text":"Hello, Ada"}
	// second: {"text":"Hello, Grace"}
	// second: sealed with summer
	// first: sealed with spring
	// in the file: false
}

// deflate compresses, and keeps nothing secret.
type deflate struct{}

func (deflate) Key() string { return "deflate" }

func (deflate) Seal(_ string, _ backend.Place, plain []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// largest is more than any payload has, so that a few bytes cannot fill the memory.
const largest = 64 << 20

func (deflate) Open(key string, _ backend.Place, sealed []byte) ([]byte, error) {
	if key != "deflate" {
		return nil, backend.ErrUnknownKey
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(sealed)), largest+1))
	if err == nil && len(plain) > largest {
		err = errors.New("it is larger than any payload")
	}
	return plain, err
}

func (deflate) Digest(key string, at backend.Place, plain []byte) ([]byte, error) {
	if key != "deflate" {
		return nil, backend.ErrUnknownKey
	}
	sum := sha256.Sum256(append(at.Bytes(), plain...))
	return sum[:], nil
}

// A Sealer may compress instead. Its key is then only a name for how.
func Example_compress() {
	dir, err := os.MkdirTemp("", "seal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "greetings.db")
	greet(path, deflate{}, "long", string(bytes.Repeat([]byte("Ada "), 1_000_000)))
	stored, err := os.Stat(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("smaller than its payload:", stored.Size() < 1_000_000)
	output(path, nil, "long")
	// Output:
	// smaller than its payload: true
	// long: sealed with deflate
}
