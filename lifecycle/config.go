package lifecycle

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Config is everything an engine needs. Backend and Nodes are required.
type Config struct {
	Backend backend.Store
	// Nodes is what this engine can run. It must not be added to while the engine is used.
	Nodes *node.Registry
	// Clock is the engine's clock. Defaults to the system's.
	Clock Clock
	// IDs makes run ids and checkpoint ids. Defaults to monotonic ULIDs.
	IDs IDs
	// Logger gets structured records (keys run, node, seq, attempt, ...; never payloads or
	// tokens). Defaults to slog.Default().
	Logger *slog.Logger

	// TTL is the age beyond which a claim may be stolen. Held claims are refreshed every
	// third of it, so nodes may run for many TTLs. Defaults to 1m; at least MinTTL.
	TTL time.Duration
	// MaxAttempts is how many launches in a row without a commit before poison. Defaults to 5.
	MaxAttempts int
	// MaxAbandons is how many abandons in a row before poison. It is also how often in a row, without a
	// commit, this engine gives a run's attempt back when it gives the run up because it could not
	// refresh its claim in time. Defaults to 20.
	MaxAbandons int
	// AbandonBackoff is the delay before an abandoned run is due again; jitter of up to half
	// of it is added. For a node timeout above MaxNodeTimeout, which never poisons, it is
	// the base of an exponential delay. Defaults to 5s.
	AbandonBackoff time.Duration
	// Fairness orders the due runs of different owners. Defaults to claim.OldestFirst.
	Fairness claim.Fairness

	// OwnerCap, when above 0, bounds how many runs of one owner all engines together hold at
	// once. It needs a backend with feature X10. Claims are what is counted, so with a cap Start
	// stores every run as due, and one of these claims begins it.
	OwnerCap int
	// Graphs, when not empty, are the only graphs whose runs Run claims. It needs a backend
	// with feature X4. Without it an engine hands back what it cannot run.
	Graphs []claim.GraphFilter

	// Concurrency is how many runs Run, or one Drain, drives at once. Defaults to 10.
	Concurrency int
	// NodeLimits bounds, by the name of a node type, how many nodes of it this engine executes at once.
	// A run whose node waits for its turn keeps its place among Concurrency; a node's timeout begins
	// with its turn.
	NodeLimits map[string]int
	// Retention, when not nil, lets Run delete finished runs. It needs a backend with feature X7.
	Retention *Retention
	// CommitBudget is how many commits in a row one claim may make before the run goes
	// back to the queue, so that long runs do not keep short ones waiting. Defaults to 100.
	CommitBudget int
	// MaxNodeTimeout refuses (hands back) nodes with a longer timeout, and is the timeout
	// of nodes that state none. 0: no bound.
	MaxNodeTimeout time.Duration
	// NodeGrace is how long a node may take to return after its context ended. After
	// that its goroutine is reported and left behind. Defaults to 5s.
	NodeGrace time.Duration
	// ShutdownTimeout is how long a shutdown lets running nodes reach a commit before
	// their contexts end and their runs are released. Defaults to 10s.
	ShutdownTimeout time.Duration
	// PollInterval is how often Run looks for due runs, and Await for a change, when nothing
	// announces one. Run adds up to a quarter of it, so that engines do not look
	// together. Defaults to 1s.
	PollInterval time.Duration

	// Limits bounds documents, events and values.
	Limits value.Limits

	// Observe, when set, is called after each commit of this engine with its events. It
	// cannot veto anything; its panics are logged. It must not modify what it is given.
	Observe func(d *run.Document, events []run.Event)
	// Observers are told what the engine does, in this order: for metrics and traces.
	Observers []Observer

	// Middleware wraps every attempt of every node of this engine, the first outermost.
	Middleware []node.Middleware

	scheduler scheduler // tests replace it; goroutines otherwise
}

// MinTTL is the shortest TTL an engine accepts.
const MinTTL = 10 * time.Millisecond

// ErrInvalidConfig is matched by *ConfigError.
var ErrInvalidConfig = errors.New("belay: invalid configuration")

// ConfigError lists everything that is wrong with a Config.
type ConfigError struct {
	// Problems each begin with the name of the field, and say what to do.
	Problems []string
	// Nodes is the registry's own error, nil when there is none. It is unwrapped.
	Nodes error
}

func (e *ConfigError) Error() string {
	return ErrInvalidConfig.Error() + ":\n\t" + strings.Join(e.Problems, "\n\t")
}

// Is makes errors.Is(err, ErrInvalidConfig) true.
func (e *ConfigError) Is(target error) bool { return target == ErrInvalidConfig }

// Unwrap is the registry's error.
func (e *ConfigError) Unwrap() error { return e.Nodes }

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.IDs == nil {
		c.IDs = NewULIDs(c.Clock)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.scheduler == nil {
		c.scheduler = goroutines{}
	}
	orDuration := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	orInt := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	orDuration(&c.TTL, time.Minute)
	orDuration(&c.AbandonBackoff, 5*time.Second)
	orDuration(&c.NodeGrace, 5*time.Second)
	orDuration(&c.ShutdownTimeout, 10*time.Second)
	orDuration(&c.PollInterval, time.Second)
	orInt(&c.MaxAttempts, 5)
	orInt(&c.MaxAbandons, 20)
	orInt(&c.Concurrency, 10)
	orInt(&c.CommitBudget, 100)
	if c.Retention != nil {
		r := *c.Retention // the caller's stays as it is
		orDuration(&r.Every, time.Hour)
		orDuration(&r.Pause, 100*time.Millisecond)
		orInt(&r.Batch, 100)
		c.Retention = &r
	}
	c.Limits = c.Limits.WithDefaults()
	return c
}

// validate is the one place where a configuration is judged. It sees the defaults filled in.
func (c Config) validate() error {
	bad := &ConfigError{}
	say := func(format string, args ...any) { bad.Problems = append(bad.Problems, fmt.Sprintf(format, args...)) }
	if isNil(c.Backend) {
		say("Backend is nil: open one, for example memory.New(memory.Options{})")
	}
	if c.Nodes == nil {
		say("Nodes is nil: pass node.NewRegistry() with the node types of your graphs added")
	} else if err := c.Nodes.Err(); err != nil {
		bad.Nodes = err
		say("Nodes holds types that cannot be used, correct them: %s", strings.TrimPrefix(err.Error(), "belay: "))
	}
	if isNil(c.Clock) {
		say("Clock holds a nil pointer: leave it out for the system's clock")
	}
	if isNil(c.IDs) {
		say("IDs holds a nil pointer: leave it out for ULIDs")
	}
	if c.TTL < MinTTL {
		say("TTL is %v: use at least %v, since heartbeats go out every third of it", c.TTL, MinTTL)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"AbandonBackoff", c.AbandonBackoff},
		{"NodeGrace", c.NodeGrace},
		{"ShutdownTimeout", c.ShutdownTimeout},
		{"PollInterval", c.PollInterval},
		{"MaxNodeTimeout", c.MaxNodeTimeout},
	} {
		if d.value < 0 {
			say("%s is %v: use a positive duration, or 0 for the default", d.field, d.value)
		}
	}
	for _, n := range []struct {
		field string
		value int
	}{
		{"MaxAttempts", c.MaxAttempts},
		{"MaxAbandons", c.MaxAbandons},
		{"Concurrency", c.Concurrency},
		{"CommitBudget", c.CommitBudget},
		{"Limits.Document", c.Limits.Document},
		{"Limits.EventPayload", c.Limits.EventPayload},
		{"Limits.Value", c.Limits.Value},
	} {
		if n.value < 1 {
			say("%s is %d: use 1 or more, or 0 for the default", n.field, n.value)
		}
	}
	if c.Limits.Value > c.Limits.Document {
		say("Limits.Value (%d) is above Limits.Document (%d): a value is part of a document, so raise the one or lower the other", c.Limits.Value, c.Limits.Document)
	}
	if c.Fairness > claim.Interleave {
		say("Fairness is %d: use claim.OldestFirst or claim.Interleave", c.Fairness)
	}
	c.validateClaiming(say)
	if len(bad.Problems) > 0 {
		return bad
	}
	return nil
}

// validateClaiming judges what narrows the claims of an engine, and whether the backend can.
func (c Config) validateClaiming(say func(format string, args ...any)) {
	var features backend.Features
	if !isNil(c.Backend) {
		features = c.Backend.Features()
	}
	switch {
	case c.OwnerCap < 0:
		say("OwnerCap is %d: use 1 or more, or 0 for no bound", c.OwnerCap)
	case c.OwnerCap > 0 && !features.OwnerCap:
		say("OwnerCap needs a backend that counts an owner's claims (feature X10): leave it out, or use another backend")
	}
	if len(c.Graphs) > 0 && !features.ClaimFilter {
		say("Graphs needs a backend that filters claims (feature X4): leave it out, or use another backend")
	}
	for i, m := range c.Middleware {
		if m == nil {
			say("Middleware[%d] is nil: leave it out", i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.NodeLimits)) {
		if n := c.NodeLimits[name]; n < 1 {
			say("NodeLimits[%q] is %d: use 1 or more, or leave the type out", name, n)
		}
		if c.Nodes == nil {
			continue
		}
		if _, ok := c.Nodes.NodeType(name, 0); !ok {
			say("NodeLimits names %q, which Nodes does not hold: correct the name, or add the type", name)
		}
	}
	if r := c.Retention; r != nil {
		r.validate(features, say)
	}
	policy := claim.Policy{Limit: 1, MaxAttempts: 1, Filter: claim.Filter{Graphs: c.Graphs}}
	if err := policy.Validate(); err != nil {
		say("Graphs cannot be claimed by: %v", err)
	}
}

// isNil also sees a nil pointer inside an interface, which would only panic later.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
