// Bench measures belay beside the systems it is compared with, and beside the raw limits of the
// databases, in one run on one throwaway server. README.md says what each row is and how to read
// the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// rounds is how often each contestant runs.
const rounds = 3

// gcPercent is GOGC for every contestant alike, since all of them run in this process: what docs/performance.md
// advises for a process whose work is driving runs.
const gcPercent = 400

// rows are all there are, in the order they are measured in.
func rows() []row {
	return []row{p11(), p7(), p10(), p6(), p1(), p2(), p3(), p4(), p5(), p9(), p12(), p8()}
}

// options are the flags.
type options struct {
	only                                      []string
	quick                                     bool
	json, from, markdown, svg, notes, results string
	profiles                                  string
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("only", "", "measure these `rows` alone: P1,P4")
	flags.BoolVar(&o.quick, "quick", false, "measure little: under five minutes, for a first look")
	flags.StringVar(&o.json, "json", "", "write the report as JSON to this `file`")
	flags.StringVar(&o.from, "from", "", "measure nothing: read the report from this `file`")
	flags.StringVar(&o.markdown, "markdown", "", "put the table between the markers of this `page`")
	flags.StringVar(&o.svg, "svg", "", "draw the picture to this `file`")
	flags.StringVar(&o.notes, "notes", "notes", "`folder` of the notes about missed targets")
	flags.StringVar(&o.results, "results", "results", "`folder` of the reports of releases, to compare with the newest")
	flags.StringVar(&o.profiles, "cpuprofile", "", "write CPU profiles of belay's measured stretches to this `folder`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q? Rows are named with -only", flags.Arg(0))
	}
	if *only != "" {
		known := map[string]bool{}
		for _, r := range rows() {
			known[r.id] = true
		}
		for _, id := range strings.Split(*only, ",") {
			id = strings.ToUpper(strings.TrimSpace(id))
			if !known[id] {
				return o, fmt.Errorf("there is no row %q: they are P1 to P12", id)
			}
			o.only = append(o.only, id)
		}
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(program(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// program is the program: 0 when every target is met or noted, 1 when not, 2 for bad usage.
func program(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return 2
	}
	r, err := reportOf(ctx, o, errs)
	if err == nil {
		err = show(r, o, out)
	}
	if err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return 1
	}
	failed := r.failures()
	for _, line := range failed {
		fmt.Fprintln(errs, "bench:", line)
	}
	if len(failed) > 0 {
		return 1
	}
	return 0
}

// reportOf measures, or reads what was measured.
func reportOf(ctx context.Context, o options, progress io.Writer) (*report, error) {
	if o.from == "" {
		return measure(ctx, o, progress)
	}
	r, err := readReport(o.from)
	if err != nil {
		return nil, err
	}
	for i := range r.Rows {
		r.Rows[i].Note = noted(o.notes, r.Rows[i].ID)
	}
	return r, nil
}

// show prints the table and writes what was asked for.
func show(r *report, o options, out io.Writer) error {
	before, err := lastRelease(o.results, r.Quick)
	if err != nil {
		return err
	}
	r.table(out, before)
	for _, output := range []struct {
		path  string
		write func(string) error
	}{{o.json, r.write}, {o.markdown, r.insert}, {o.svg, r.draw}} {
		if output.path == "" {
			continue
		}
		if err := output.write(output.path); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the rows.
func measure(ctx context.Context, o options, progress io.Writer) (*report, error) {
	dir, err := os.MkdirTemp("", "belay-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return nil, err
		}
	}
	debug.SetGCPercent(gcPercent)
	e := &env{quick: o.quick, rounds: rounds, server: &server{}, dir: dir, out: progress, began: time.Now(), profiles: o.profiles}
	defer e.server.stop()
	r := &report{Format: reportFormat, When: e.began.UTC().Truncate(time.Second), Quick: o.quick, Rounds: rounds, Machine: thisMachine(), Versions: versions()}
	r.Machine.GOGC = gcPercent
	for _, row := range rows() {
		if len(o.only) > 0 && !slices.Contains(o.only, row.id) {
			continue
		}
		e.row = row.id
		e.progress("%s", row.work)
		result := rowResult{ID: row.id, Work: row.work, Note: noted(o.notes, row.id)}
		for _, c := range row.contests {
			result.Contests = append(result.Contests, c.measure(ctx, e))
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		r.Rows = append(r.Rows, result)
	}
	r.Machine.PostgreSQL = e.server.version
	r.Seconds = time.Since(e.began).Seconds()
	slices.SortFunc(r.Rows, func(a, b rowResult) int { return order(a.ID) - order(b.ID) })
	return r, nil
}

// order sorts P2 before P10.
func order(id string) int {
	n := 0
	_, _ = fmt.Sscanf(id, "P%d", &n)
	return n
}
