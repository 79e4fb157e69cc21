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
	id      string
	resume  string
	steal   bool
}

func newRunCommand(t *terminal) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run {GRAPH | --resume RUN}",
		Short: "Start a run of a graph, or resume one, and drive it to its end or its next question",
		Long: `Publish a graph of built-in nodes, start a run, and drive it until it ends or needs an answer that was
not given. Progress goes to standard error, the run's output to standard output.

With --resume a run goes on after its last checkpoint, and what finished before does not run again. When
another process holds the run, this one waits until it lets go or its claim has expired, a minute after its
last sign of life. --steal does not wait, and is only for a process of this host that is known to be gone.`,
		Example: `  belay run release.yaml --input '{"packages":["./claim"],"out":"dist"}' --answer approve=true
  belay run order.yaml --input @order.json --json
  belay run --resume 01KE`,
		Args: func(cmd *cobra.Command, args []string) error {
			resuming := cmd.Flags().Changed("resume")
			hint := "as in: belay run --resume RUN"
			switch {
			case cmd.Flags().Changed("id") && opts.id == "":
				return usage(errors.New("--id is empty"), "give the run an id, or leave --id out for a new one")
			case !resuming && opts.steal:
				return usage(errors.New("--steal takes over a run that is resumed"), hint+" --steal")
			case !resuming:
				return oneGraph(cmd, args)
			case len(args) > 0:
				return usage(errors.New("a run that is resumed has its graph already"), hint)
			case cmd.Flags().Changed("input"), cmd.Flags().Changed("id"):
				return usage(errors.New("a run that is resumed has its input and its id already"), hint)
			}
			return nil
		},
	}
	place := newLocation(t, cmd)
	flags := cmd.Flags()
	flags.StringVar(&opts.input, "input", "{}", "the run's input: a JSON object, @FILE, or @- for standard input")
	flags.StringArrayVar(&opts.answers, "answer", nil,
		"NODE=JSON, the answer to a question of that node; each is used once, in the order given")
	flags.StringVar(&opts.id, "id", "", "the run's id (default: a new one)")
	flags.StringVar(&opts.resume, "resume", "", "the run to go on with: its id, or enough of its beginning")
	flags.BoolVar(&opts.steal, "steal", false, "take a run over at once from a process of this host that is gone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("resume") {
			return resumeRun(cmd.Context(), place, opts)
		}
		return startRun(cmd.Context(), place, args[0], opts)
	}
	return exits(cmd, exitFailed, exitWaiting, exitPoisoned, exitCancelled, exitInfrastructure)
}

// startRun is belay run GRAPH.
func startRun(ctx context.Context, place *location, path string, opts runOptions) (err error) {
	t := place.terminal
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
	s, err := place.create(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	progress := newProgress(t)
	engine, err := newEngine(s, progress)
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
	progress.say("run %s of %s", r.ID, ref.ID)
	d := driver{place: place, store: s, engine: engine, client: &engine.Client, run: r.ID, answers: answers, progress: progress}
	return d.toTheEnd(ctx)
}

// newEngine makes the engine of a command. progress may be nil.
func newEngine(s *store, progress *progress) (*belay.Engine, error) {
	cfg := belay.Config{
		Backend:         s.Store,
		Nodes:           std.Register(node.NewRegistry()),
		Logger:          slog.New(slog.DiscardHandler),
		TTL:             claimTTL,
		MaxAttempts:     maxAttempts,
		MaxAbandons:     maxAbandons,
		ShutdownTimeout: shutdownTimeout,
	}
	if progress != nil {
		cfg.Observe = progress.observe
		cfg.Observers = []belay.Observer{{Abandoned: progress.abandoned}}
	}
	return belay.New(cfg)
}

// driver drives one run until it ends or nothing more happens without an answer.
type driver struct {
	place    *location
	store    *store
	engine   *belay.Engine
	client   *belay.Client // of the run's owner
	run      string
	answers  []answer
	progress *progress
	told     string // what was said of the process that holds the run
}

// The bounds between which a run that is due later, or held by another process, is looked at.
const (
	shortestLook = 20 * time.Millisecond
	longestLook  = time.Second
)

// toTheEnd drives the run and prints how it stands.
func (d *driver) toTheEnd(ctx context.Context) error {
	r, err := d.drive(ctx)
	d.progress.end()
	if err != nil {
		return err
	}
	return d.outcome(context.WithoutCancel(ctx), r)
}

func (d *driver) drive(ctx context.Context) (*belay.Run, error) {
	for {
		err := d.drain(ctx)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		r, err := d.client.Inspect(context.WithoutCancel(ctx), d.run)
		if err != nil {
			return nil, err
		}
		if r.Status.Terminal() || !r.Poison.At.IsZero() {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, d.interrupted()
		}
		answered, err := d.answer(ctx, r)
		switch {
		case ctx.Err() != nil:
			return nil, d.interrupted()
		case err != nil:
			return nil, err
		case answered:
		case r.NeedsAnswer():
			return r, nil
		default:
			if err := d.tellHolder(ctx, r); err != nil {
				return nil, err
			}
			d.progress.waits(r.Wake)
			if !sleep(ctx, min(max(time.Until(r.Wake), shortestLook), longestLook)) {
				return nil, d.interrupted()
			}
		}
	}
}

// drain drives what is due of the run. When it is interrupted it says what it waits for.
func (d *driver) drain(ctx context.Context) error {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		d.progress.say("stopping: what runs now has %s to finish; interrupt again to end it at once", shutdownTimeout)
	})
	_, err := d.engine.Drain(ctx, belay.DrainOptions{Runs: []string{d.run}, Cut: d.place.terminal.cut})
	if !stop() {
		<-said
	}
	return err
}

// tellHolder says, once for each that takes it, which other process holds the run.
func (d *driver) tellHolder(ctx context.Context, r *belay.Run) error {
	if r.ClaimedAt.IsZero() {
		d.told = ""
		return nil
	}
	h, err := d.store.holder(ctx, d.run)
	if err != nil || d.told == h.String() {
		return err
	}
	d.told = h.String()
	expires := r.ClaimedAt.Add(claimTTL).UTC().Format(time.RFC3339)
	switch {
	case h.gone():
		d.progress.say("the run is held by %s; its claim expires at %s, and this waits for it", h, expires)
		d.progress.say("to take it over at once: %s", d.place.again("run", "--resume", d.run, "--steal"))
	default:
		d.progress.say("the run is held by %s; this waits until it lets go, or until its claim expires, at %s at the earliest", h, expires)
	}
	return nil
}

func (d *driver) interrupted() error {
	if d.store.transient {
		return &exitError{
			code: exitInfrastructure,
			err:  fmt.Errorf("interrupted, and run %s is lost: memory: keeps nothing beyond this command", d.run),
			hint: "run it again from the start, and keep it in a file: --db sqlite:FILE",
		}
	}
	return &exitError{
		code: exitInfrastructure,
		err:  fmt.Errorf("interrupted: run %s is kept as of its last checkpoint", d.run),
		hint: "go on with: " + d.place.again("run", "--resume", d.run),
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
		_, err := d.client.Resolve(ctx, d.run, open.ID, given.value)
		if errors.Is(err, run.ErrInvalidAnswer) {
			return false, d.unfit(given.node, err)
		}
		return err == nil, err
	}
	return false, nil
}

// unfit is for an answer that does not fit. The run goes on waiting for one that does.
func (d *driver) unfit(node string, err error) error {
	err = fmt.Errorf("--answer %s: %w", node, err)
	if d.store.transient {
		return usage(err, "give an answer that fits the question's schema")
	}
	return usage(fmt.Errorf("%w; run %s waits on", err, d.run),
		"give an answer that fits the question's schema: "+d.place.again("run", "--resume", d.run, "--answer", node+"=JSON"))
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
