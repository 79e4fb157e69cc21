package otel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The keys of attributes. Metrics carry only those whose values are few.
const (
	keyRun           = attribute.Key("belay.run.id")
	keyGraph         = attribute.Key("belay.graph.id")
	keyGraphHash     = attribute.Key("belay.graph.hash")
	keyTenant        = attribute.Key("belay.tenant.id")
	keySeq           = attribute.Key("belay.checkpoint.seq")
	keyStatus        = attribute.Key("belay.run.status")
	keyCheckpoint    = attribute.Key("belay.checkpoint.type")
	keyCommits       = attribute.Key("belay.claim.commits")
	keyClaimAttempt  = attribute.Key("belay.claim.attempt")
	keyClaimKind     = attribute.Key("belay.claim.kind")
	keyFenceStage    = attribute.Key("belay.fence.stage")
	keyAbandonReason = attribute.Key("belay.abandon.reason")
	keyDisposition   = attribute.Key("belay.abandon.disposition")
	keyPoisonReason  = attribute.Key("belay.poison.reason")
	keyStartOutcome  = attribute.Key("belay.start.outcome")
	keyNode          = attribute.Key("belay.node.id")
	keyNodeType      = attribute.Key("belay.node.type")
	keyNodeVersion   = attribute.Key("belay.node.version")
	keyTask          = attribute.Key("belay.task.id")
	keyAttempt       = attribute.Key("belay.node.attempt")
	keyOutcome       = attribute.Key("belay.node.outcome")
	keyErrorType     = attribute.Key("error.type")
)

// The values of belay.claim.kind.
const (
	kindReady  = "ready"
	kindStolen = "stolen"
	kindFresh  = "fresh"
)

// Metric describes one of the instruments of an observer.
type Metric struct {
	Name string
	// Kind is the instrument's: counter, updowncounter or histogram.
	Kind string
	// Unit is in the notation of UCUM.
	Unit        string
	Description string
	// Attributes are the keys of its attributes.
	Attributes []string
}

// The kinds of instrument.
const (
	counter       = "counter"
	upDownCounter = "updowncounter"
	histogram     = "histogram"
)

// Metrics lists every instrument of an observer.
func Metrics() []Metric {
	on := func(keys ...attribute.Key) []string {
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i] = string(k)
		}
		return names
	}
	return []Metric{
		{"belay.starts", counter, "{start}", "Starts: stored, refused, or answered with the run that holds the start key", on(keyGraph, keyStartOutcome)},
		{"belay.claims", counter, "{claim}", "Launches of runs: of one that was due (ready), taken over from a claim that had expired (stolen), or claimed by its start (fresh)", on(keyGraph, keyClaimKind)},
		{"belay.claim.active", upDownCounter, "{claim}", "Runs that are driven at the moment", on(keyGraph)},
		{"belay.queue.age", histogram, "s", "How long a run was due before it was claimed", on(keyGraph)},
		{"belay.commits", counter, "{commit}", "Commits that are stored, by their type", on(keyGraph, keyCheckpoint)},
		{"belay.commit.duration", histogram, "s", "How long the backend took for a commit, repetitions and the wait for its group included", on(keyCheckpoint)},
		{"belay.commit.group.size", histogram, "{commit}", "How many commits of driven runs went to the backend in one call", on()},
		{"belay.fence.losses", counter, "{claim}", "Claims that ended because they were no longer this engine's, by where that turned out", on(keyGraph, keyFenceStage)},
		{"belay.abandons", counter, "{abandon}", "Runs handed back because they cannot begin here, by the code of the first reason", on(keyGraph, keyAbandonReason, keyDisposition)},
		{"belay.poisons", counter, "{run}", "Runs parked until an operator frees them", on(keyGraph, keyPoisonReason)},
		{"belay.node.duration", histogram, "s", "How long an attempt of a node took, by what it came to", on(keyGraph, keyNodeType, keyOutcome)},
		{"belay.node.stuck", counter, "{goroutine}", "Nodes left behind because they ignored the end of their context", on(keyNodeType)},
	}
}

// The bounds of histograms: seconds, and members of a group.
var (
	secondBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	memberBounds = []float64{1, 2, 5, 10, 20, 50, 100}
)

// instruments are what Metrics lists.
type instruments struct {
	starts, claims, commits, losses, abandons, poisons, stuck metric.Int64Counter
	active                                                    metric.Int64UpDownCounter
	queueAge, commitDuration, nodeDuration                    metric.Float64Histogram
	groupSize                                                 metric.Int64Histogram
}

func newInstruments(m metric.Meter) (in instruments, err error) {
	counters := map[string]*metric.Int64Counter{
		"belay.starts": &in.starts, "belay.claims": &in.claims, "belay.commits": &in.commits, "belay.fence.losses": &in.losses,
		"belay.abandons": &in.abandons, "belay.poisons": &in.poisons, "belay.node.stuck": &in.stuck,
	}
	seconds := map[string]*metric.Float64Histogram{
		"belay.queue.age": &in.queueAge, "belay.commit.duration": &in.commitDuration, "belay.node.duration": &in.nodeDuration,
	}
	var errs []error
	for _, d := range Metrics() {
		unit, text := metric.WithUnit(d.Unit), metric.WithDescription(d.Description)
		var err error
		switch {
		case d.Kind == counter:
			*counters[d.Name], err = m.Int64Counter(d.Name, unit, text)
		case d.Kind == upDownCounter:
			in.active, err = m.Int64UpDownCounter(d.Name, unit, text)
		case d.Unit == "s":
			*seconds[d.Name], err = m.Float64Histogram(d.Name, unit, text, metric.WithExplicitBucketBoundaries(secondBounds...))
		default:
			in.groupSize, err = m.Int64Histogram(d.Name, unit, text, metric.WithExplicitBucketBoundaries(memberBounds...))
		}
		errs = append(errs, err)
	}
	return in, errors.Join(errs...)
}
