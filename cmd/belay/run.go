package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// runOptions are the flags of belay run.
type runOptions struct {
	input   string
	answers []string
	db      string
	id      string
}

func newRunCommand(t *terminal) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run GRAPH",
		Short: "Publish a graph, start a run of it and drive it to its end or its next question",
		Long: `Publish a graph of built-in nodes, start a run, and drive it until it ends or needs an answer that was
not given. Progress goes to standard error, the run's output to standard output.`,
		Example: `  belay run release.yaml --input '{"packages":["./claim"],"out":"dist"}' --answer approve=true
  belay run order.yaml --input @order.json --json`,
		Args: oneGraph,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGraph(cmd.Context(), t, args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.input, "input", "{}", "the run's input: a JSON object, @FILE, or @- for standard input")
	flags.StringArrayVar(&opts.answers, "answer", nil,
		"NODE=JSON, the answer to a question of that node; each is used once, in the order given")
	flags.StringVar(&opts.db, "db", "memory:", "where runs are kept: memory: keeps them until the command ends")
	flags.StringVar(&opts.id, "id", "", "the run's id (default: a new one)")
	return cmd
}

// runGraph is the whole of belay run.
func runGraph(ctx context.Context, t *terminal, path string, opts runOptions) (err error) {
	input, err := readInput(t.in, opts.input)
	if err != nil {
		return err
	}
	answers, err := parseAnswers(opts.answers)
	if err != nil {
		return err
	}
	doc, err := belay.ReadGraph(path)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if _, ok := doc.Nodes[a.node]; !ok {
			return usage(fmt.Errorf("--answer %s: the graph has no such node", a.node), "see: belay graph show "+path)
		}
	}
	store, err := openStore(opts.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	progress := newProgress(t)
	engine, err := belay.New(belay.Config{
		Backend: store,
		Nodes:   std.Register(node.NewRegistry()),
		Logger:  slog.New(slog.DiscardHandler),
		Observe: progress.observe,
	})
	if err != nil {
		return err
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		return err
	}
	r, err := engine.Start(ctx, ref, input, belay.StartOptions{ID: opts.id})
	if err != nil {
		return err
	}
	t.say("run %s of %s", r.ID, ref.ID)
	d := driver{terminal: t, engine: engine, run: r.ID, answers: answers, progress: progress}
	r, err = d.drive(ctx)
	progress.end()
	if err != nil {
		return err
	}
	return t.outcome(r, progress.failure(), path)
}

// driver drives one run until it ends or nothing more happens without an answer.
type driver struct {
	terminal *terminal
	engine   *belay.Engine
	run      string
	answers  []answer
	progress *progress
}

// The bounds between which a run that is due later, or held by another process, is looked at.
const (
	shortestLook = 20 * time.Millisecond
	longestLook  = time.Second
)

func (d *driver) drive(ctx context.Context) (*belay.Run, error) {
	for {
		_, err := d.engine.Drain(ctx, belay.DrainOptions{Runs: []string{d.run}})
		if ctx.Err() != nil {
			return nil, d.interrupted()
		}
		if err != nil {
			return nil, err
		}
		r, err := d.engine.Inspect(ctx, d.run)
		if err != nil {
			return nil, err
		}
		if r.Status.Terminal() || !r.Poison.At.IsZero() {
			return r, nil
		}
		answered, err := d.answer(ctx, r)
		if err != nil {
			return nil, err
		}
		switch {
		case answered:
		case r.NeedsAnswer():
			return r, nil
		default:
			d.progress.waits(r.Wake)
			if !sleep(ctx, min(max(time.Until(r.Wake), shortestLook), longestLook)) {
				return nil, d.interrupted()
			}
		}
	}
}

func (d *driver) interrupted() error {
	return &exitError{
		code: exitInfrastructure,
		err:  fmt.Errorf("interrupted, and run %s is lost: memory: keeps nothing beyond this command", d.run),
		hint: "run it again from the start",
	}
}

// answer resolves the first open interrupt for whose node an answer is left.
func (d *driver) answer(ctx context.Context, r *belay.Run) (bool, error) {
	for _, open := range r.OpenInterrupts() {
		i := slices.IndexFunc(d.answers, func(a answer) bool { return a.node == open.Node })
		if i < 0 {
			continue
		}
		given := d.answers[i]
		d.answers = slices.Delete(d.answers, i, i+1)
		_, err := d.engine.Resolve(ctx, d.run, open.ID, given.value)
		if errors.Is(err, run.ErrInvalidAnswer) {
			return false, usage(fmt.Errorf("--answer %s: %w", given.node, err), "give an answer that fits the question's schema")
		}
		return err == nil, err
	}
	return false, nil
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func readInput(stdin io.Reader, flag string) (value.Value, error) {
	raw := []byte(flag)
	if name, ok := strings.CutPrefix(flag, "@"); ok {
		var err error
		if name == "-" {
			raw, err = io.ReadAll(stdin)
		} else {
			raw, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, usage(fmt.Errorf("--input cannot be read: %w", err), "give JSON, @FILE, or @- for standard input")
		}
	}
	input, err := value.Parse(raw)
	if err != nil {
		return nil, usage(fmt.Errorf("--input is not JSON that can be stored: %w", err), `as in: --input '{"name":"value"}'`)
	}
	return input, nil
}

// answer is one --answer.
type answer struct {
	node  string
	value value.Value
}

func parseAnswers(flags []string) ([]answer, error) {
	answers := make([]answer, len(flags))
	for i, flag := range flags {
		name, text, ok := strings.Cut(flag, "=")
		if !ok || name == "" {
			return nil, usage(fmt.Errorf("--answer %q is not NODE=JSON", flag), "as in: --answer approve=true")
		}
		v, err := value.Parse([]byte(text))
		if err != nil {
			return nil, usage(fmt.Errorf("--answer %s: not JSON: %w", name, err), `a text needs its quotes: --answer `+name+`='"text"'`)
		}
		answers[i] = answer{name, v}
	}
	return answers, nil
}
