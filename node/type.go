package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// ErrInvalidType is matched by every *TypeError.
var ErrInvalidType = errors.New("belay: invalid node type")

// TypeError says why a node type cannot be registered, and what to do.
type TypeError struct {
	Name    string
	Version int
	// Reason is one sentence without a final stop.
	Reason string
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("%v %q version %d: %s", ErrInvalidType, e.Name, e.Version, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidType) true.
func (e *TypeError) Is(target error) bool { return target == ErrInvalidType }

// Type is one node type: its contract and how it is bound to a node of a graph. Make
// one with Of, Configured or Raw. A type that was made wrongly says so when it is added
// to a Registry.
type Type struct {
	contract graph.NodeType
	config   *value.Schema
	prepare  func(Site) (Func, error)
	upgrades map[int]func(value.Value) (value.Value, error)
	problems []string
	// canonical says that updates come canonicalized already.
	canonical bool
}

// Contract is the part of the type that a graph is checked against. The caller must not
// modify it.
func (t Type) Contract() graph.NodeType { return t.contract }

// Err is why the type cannot be registered: nil, or *TypeErrors, joined.
func (t Type) Err() error {
	errs := make(joined, len(t.problems))
	for i, reason := range t.problems {
		errs[i] = &TypeError{Name: t.contract.Name, Version: t.contract.Version, Reason: reason}
	}
	if t.prepare == nil && len(errs) == 0 {
		return &TypeError{Reason: "it is the zero Type: make one with node.Of, node.Configured or node.Raw"}
	}
	return errs.err()
}

// joined are the errors of types, each on a line of its own after one prefix.
type joined []error

func (j joined) Error() string {
	lines := make([]string, len(j))
	for i, err := range j {
		lines[i] = strings.TrimPrefix(err.Error(), "belay: ")
	}
	return "belay: " + strings.Join(lines, "\n\t")
}

func (j joined) Unwrap() []error { return j }

func (j joined) err() error {
	switch len(j) {
	case 0:
		return nil
	case 1:
		return j[0]
	}
	return j
}

func (t *Type) refuse(format string, args ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// Raw makes a node type from a contract and a function that prepares a node of a graph:
// it is called once for each node, and what it returns runs every attempt. An error of
// prepare means that this binary cannot run the graph. The contract's Accepts is filled
// by the option of that name and must be empty.
func Raw(contract graph.NodeType, prepare func(Site) (Func, error), opts ...Option) Type {
	t := Type{contract: contract, prepare: prepare}
	t.contract.Reads = maps.Clone(contract.Reads)
	t.contract.Writes = maps.Clone(contract.Writes)
	if prepare == nil {
		t.refuse("the prepare function is nil: pass the function that binds a node")
	}
	if len(contract.Accepts) > 0 {
		t.refuse("the contract lists accepted versions: use the option node.Accepts, which says how a config is upgraded")
	}
	t.finish(opts)
	return t
}

// finish applies options and checks the contract.
func (t *Type) finish(opts []Option) {
	for _, opt := range opts {
		if opt == nil {
			t.refuse("an option is nil: leave it out")
			continue
		}
		opt(t)
	}
	slices.Sort(t.contract.Accepts)
	var wrong graph.Diagnostics
	if err := t.contract.Valid(); errors.As(err, &wrong) {
		for _, d := range wrong.Errors() {
			t.refuse("%s: %s", d.Path, strings.TrimSuffix(d.Message, "."))
		}
		return
	}
	if t.contract.Config == nil {
		return
	}
	config, err := value.Canonical(t.contract.Config)
	if err == nil {
		t.config, err = value.CompileSchema(config, nil)
	}
	if err != nil {
		t.refuse("/config: %v", err)
		return
	}
	t.contract.Config = config
}

// Option changes a type as it is made.
type Option func(*Type)

// Accepts says that a config published for an older contract version still runs here,
// after upgrade. What the node reads and writes must be the same in both versions. The
// upgraded config is validated under this version's schema, once for each graph; an
// error of upgrade means that this binary cannot run that graph. upgrade must not modify
// the bytes it is given; config is nil for a type that took none.
func Accepts(version int, upgrade func(config value.Value) (value.Value, error)) Option {
	return func(t *Type) {
		_, twice := t.upgrades[version]
		switch {
		case version < 1 || version >= t.contract.Version:
			t.refuse("it accepts version %d: accept versions from 1 up to the one before its own", version)
		case upgrade == nil:
			t.refuse("the upgrade from version %d is nil: pass a function, one that returns the config as it is when nothing changed", version)
		case twice:
			t.refuse("it accepts version %d twice: leave one out", version)
		default:
			if t.upgrades == nil {
				t.upgrades = map[int]func(value.Value) (value.Value, error){}
			}
			t.upgrades[version] = upgrade
			t.contract.Accepts = append(t.contract.Accepts, version)
		}
	}
}

// Timeout is the longest one attempt may take, in whole microseconds, and the timeout
// of a node that does not say its own.
func Timeout(d time.Duration) Option {
	return func(t *Type) {
		switch {
		case d <= 0:
			t.refuse("the timeout is %s: it must be positive, leave the option out for none", d)
		case d%time.Microsecond != 0:
			t.refuse("the timeout is %s: use whole microseconds", d)
		default:
			t.contract.MaxTimeout = graph.Duration(d)
		}
	}
}
