package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// row is one line of the bench: what belay does, beside others that do the same in the same run.
type row struct {
	id   string
	work string
	// contests are measured one after the other; most rows have one.
	contests []contest
}

// contest is one comparison. In each round every contestant runs once; who begins changes.
type contest struct {
	// name tells the contests of a row apart; empty when there is only one.
	name string
	// setup, when not nil, prepares what all rounds share. What it returns is called at the end.
	setup func(ctx context.Context, e *env) (done func(), err error)
	// contestants: the first is belay.
	contestants []contestant
	targets     []target
}

// contestant does the work once and proves it: it prepares, measures, then checks that
// everything was done once. What it answers is only its own measure.
type contestant struct {
	name string
	// settings say how it is configured, for whoever reads the figures.
	settings string
	run      func(ctx context.Context, e *env) (figures, error)
}

// figures are what one run measured, by metric. A metric's name is its unit.
type figures map[string]float64

// target is what is to be reached: a ratio of belay's figure to another's in the same round, or
// belay's own figure when there is no other.
type target struct {
	metric  string
	against string  // a contestant's name; empty: the figure itself
	other   string  // the other's metric; empty: the same
	least   float64 // 0: no lower bound
	most    float64 // 0: no upper bound
}

// wrongError says that the work was not done as it should be, so that its speed is worth nothing.
type wrongError struct{ what string }

func (e *wrongError) Error() string { return e.what }

func wrong(format string, args ...any) error {
	return &wrongError{what: fmt.Sprintf(format, args...)}
}

// measure runs a contest and answers what came of it.
func (c *contest) measure(ctx context.Context, e *env) contestResult {
	result := contestResult{Name: c.name}
	for _, k := range c.contestants {
		result.Contestants = append(result.Contestants, contestantResult{Name: k.name, Settings: k.settings, Figures: map[string]summary{}})
	}
	if c.setup != nil {
		done, err := c.setup(ctx, e)
		if err != nil {
			for i := range result.Contestants {
				result.Contestants[i].Failed = "the setup failed: " + err.Error()
			}
			result.Targets = c.judge(nil, result.Contestants)
			return result
		}
		defer done()
	}
	rounds := make([][]figures, len(c.contestants)) // by contestant, then round
	for round := range e.rounds {
		for turn := range c.contestants {
			i := (round + turn) % len(c.contestants)
			r := &result.Contestants[i]
			if r.Wrong != "" || r.Failed != "" {
				continue
			}
			f, err := c.contestants[i].once(ctx, e)
			var w *wrongError
			switch {
			case errors.As(err, &w):
				r.Wrong = w.what
			case err != nil:
				r.Failed = err.Error()
			default:
				rounds[i] = append(rounds[i], f)
			}
			e.progress("%-8s %-16s round %d: %s", c.name, r.Name, round+1, outcome(f, err))
		}
	}
	for i := range result.Contestants {
		if r := &result.Contestants[i]; r.Wrong == "" && r.Failed == "" {
			r.Figures = summarize(rounds[i])
		}
	}
	result.Targets = c.judge(rounds, result.Contestants)
	return result
}

// once runs a contestant; a panic of a peer must not take the others' figures with it.
func (k *contestant) once(ctx context.Context, e *env) (f figures, err error) {
	defer func() {
		if r := recover(); r != nil {
			if fatal, ok := r.(fatalError); ok {
				err = fatal.err
				return
			}
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return k.run(ctx, e)
}

// judge compares round by round. A target that cannot be judged is missed.
func (c *contest) judge(rounds [][]figures, contestants []contestantResult) []targetResult {
	var results []targetResult
	for _, t := range c.targets {
		r := targetResult{Metric: t.metric, Against: t.against, Least: t.least, Most: t.most}
		other := -1
		if t.against != "" {
			other = slices.IndexFunc(c.contestants, func(k contestant) bool { return k.name == t.against })
		}
		sound := func(i int) bool { return contestants[i].Wrong == "" && contestants[i].Failed == "" }
		if rounds != nil && sound(0) && (t.against == "" || other >= 0 && sound(other)) {
			var values []float64
			for n, own := range rounds[0] {
				v, ok := own[t.metric]
				if t.against != "" {
					metric := t.other
					if metric == "" {
						metric = t.metric
					}
					base, there := rounds[other][n][metric]
					if !there || base == 0 {
						ok = false
					} else {
						v /= base
					}
				}
				if ok {
					values = append(values, v)
				}
			}
			if len(values) == len(rounds[0]) && len(values) > 0 {
				r.Value = summaryOf(values)
				r.Met = (t.least == 0 || r.Value.Median >= t.least) && (t.most == 0 || r.Value.Median <= t.most)
			}
		}
		results = append(results, r)
	}
	return results
}

func outcome(f figures, err error) string {
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, metric := range sortedKeys(f) {
		text += fmt.Sprintf("%s %s  ", number(f[metric]), metric)
	}
	return text
}

// summarize makes medians and spreads of the rounds' figures.
func summarize(rounds []figures) map[string]summary {
	values := map[string][]float64{}
	for _, f := range rounds {
		for metric, v := range f {
			values[metric] = append(values[metric], v)
		}
	}
	result := make(map[string]summary, len(values))
	for metric, vs := range values {
		result[metric] = summaryOf(vs)
	}
	return result
}

// summaryOf is the median of values, with the least and the greatest of them.
func summaryOf(values []float64) summary {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	median := sorted[n/2]
	if n%2 == 0 {
		median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return summary{Median: median, Min: sorted[0], Max: sorted[n-1]}
}
