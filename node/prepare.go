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

// ErrIncompatible is matched by *IncompatibleError.
var ErrIncompatible = errors.New("belay: this binary cannot run the graph")

// IncompatibleError says why a registry cannot run a graph: nothing executed, the run is
// handed back unharmed.
type IncompatibleError struct {
	Graph graph.Ref
	// Reasons are by node; there is at least one.
	Reasons []Incompatibility
}

// Incompatibility is one reason, as data.
type Incompatibility struct {
	// Node is the node's id, Use and Version the node type it was published for.
	Node string `json:"node"`
	Use  string `json:"use"`
	// Code is one of the Code constants of this package.
	Code    string `json:"code"`
	Version int    `json:"version"`
	// Message says what is wrong and what to do, in one sentence.
	Message string `json:"message"`
}

// The codes of an Incompatibility.
const (
	CodeUnknownType        = "unknown_node_type"
	CodeUnsupportedVersion = "unsupported_version"
	CodeInvalidConfig      = "invalid_config"
	CodeTimeoutTooLong     = "timeout_above_maximum"
)

func (e *IncompatibleError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s (%s)", ErrIncompatible, e.Graph.ID, e.Graph.Hash)
	for i, r := range e.Reasons {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%snode %s: %s", sep, r.Node, r.Message)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrIncompatible) true.
func (e *IncompatibleError) Is(target error) bool { return target == ErrIncompatible }

// Prepared is a graph's nodes bound to the code that runs them. Safe for concurrent use.
type Prepared struct {
	graph graph.Ref
	nodes map[string]bound
}

// bound is one node with the code that runs it.
type bound struct {
	fn Func
	// canonical says that fn's updates need no canonicalization.
	canonical bool
}

// ErrNilArgument is wrapped when nil was passed where a value is needed.
var ErrNilArgument = errors.New("belay: nil argument")

// Prepare binds a compiled graph: every node's type, version, config and timeout is
// checked, and every reason against is in the *IncompatibleError. maxTimeout > 0 is the
// longest timeout this host admits; a node without a timeout is admitted, and it is for
// the host to end its attempts.
func (r *Registry) Prepare(c *graph.Compiled, maxTimeout time.Duration) (*Prepared, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: the graph: compile one with graph.Publish or graph.Load", ErrNilArgument)
	}
	p := &Prepared{graph: c.Ref(), nodes: map[string]bound{}}
	var reasons []Incompatibility
	for _, n := range c.Nodes() {
		b, problems := r.prepareNode(n, maxTimeout)
		reasons = append(reasons, problems...)
		p.nodes[n.ID] = b
	}
	if len(reasons) > 0 {
		return nil, &IncompatibleError{Graph: c.Ref(), Reasons: reasons}
	}
	return p, nil
}

func (r *Registry) prepareNode(n *graph.CompiledNode, maxTimeout time.Duration) (b bound, reasons []Incompatibility) {
	refuse := func(code, format string, args ...any) {
		reasons = append(reasons, Incompatibility{
			Node: n.ID, Use: n.Use, Version: n.Version, Code: code, Message: fmt.Sprintf(format, args...),
		})
	}
	if maxTimeout > 0 && n.Timeout > maxTimeout {
		refuse(CodeTimeoutTooLong, "its timeout of %s is above this host's maximum of %s: raise the host's, or publish the graph with a shorter one", n.Timeout, maxTimeout)
	}
	t, ok := r.find(n.Use, n.Version)
	switch {
	case !ok && len(r.types[n.Use]) == 0:
		refuse(CodeUnknownType, "the node type %q is not registered: add it to the registry, or run it with a binary that has it", n.Use)
		return bound{}, reasons
	case !ok:
		refuse(CodeUnsupportedVersion, "version %d of the node type %q is not supported, only %s: register it, or accept it with node.Accepts", n.Version, n.Use, r.supported(n.Use))
		return bound{}, reasons
	}
	if limit := time.Duration(t.contract.MaxTimeout); limit > 0 && n.Timeout > limit {
		refuse(CodeTimeoutTooLong, "its timeout of %s is above the maximum of %s of the node type %q: publish the graph with a shorter one", n.Timeout, limit, n.Use)
	}
	if missing := unread(n.Reads, t.contract.Reads); missing != "" {
		refuse(CodeUnsupportedVersion, "the node type %q requires %q, which the graph's node does not read: give the changed contract a higher version", n.Use, missing)
	}
	fn, err := t.bind(n)
	if err != nil {
		refuse(CodeInvalidConfig, "its config does not fit version %d of the node type %q: %v", t.contract.Version, n.Use, err)
	}
	return bound{fn: fn, canonical: t.canonical}, reasons
}

// unread is the first required read that a node does not bind, "" when there is none.
func unread(bindings []graph.Binding, reads map[string]graph.Port) string {
	read := names(bindings)
	for _, name := range slices.Sorted(maps.Keys(reads)) {
		if reads[name].Required && !slices.Contains(read, name) {
			return name
		}
	}
	return ""
}

// supported lists the versions of a name that this registry runs, for a message.
func (r *Registry) supported(name string) string {
	var versions []int
	for _, t := range r.types[name] {
		versions = append(append(versions, t.contract.Version), t.contract.Accepts...)
	}
	slices.Sort(versions)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Compact(versions)), " ", ", "), "[]")
}

// bind upgrades and checks a node's config and prepares the node. The code of a node
// type may panic on a config it did not expect; that is a reason like any other.
func (t Type) bind(n *graph.CompiledNode) (fn Func, err error) {
	defer func() {
		if p := recover(); p != nil {
			fn, err = nil, fmt.Errorf("preparing it panicked: %s", panicText(p))
		}
	}()
	config := n.Config
	if n.Version != t.contract.Version {
		if config, err = t.upgrades[n.Version](config); err != nil {
			return nil, fmt.Errorf("upgrading it from version %d: %w", n.Version, err)
		}
		if config != nil {
			if config, err = value.Canonical(config); err != nil {
				return nil, fmt.Errorf("upgrading it from version %d: %w", n.Version, err)
			}
		}
	}
	site := Site{Node: n.ID, Config: config, Reads: names(n.Reads), Writes: names(n.Writes)}
	if site.Config, err = t.checkConfig(site); err != nil {
		return nil, err
	}
	fn, err = t.prepare(site)
	if err == nil && fn == nil {
		return nil, errors.New("preparing it gave no function")
	}
	return fn, err
}

// checkConfig validates a config under the contract. An absent config is an empty one
// for a type that takes one, and an empty one is none for a type that takes none.
func (t Type) checkConfig(site Site) (value.Value, error) {
	config := site.Config
	if t.config == nil {
		if config != nil && string(config) != "{}" {
			return nil, errors.New("it takes none: leave the config out")
		}
		return nil, nil
	}
	if config == nil {
		config = value.Value("{}")
	}
	if err := t.config.Validate(config); err != nil {
		return nil, err
	}
	if t.contract.Check != nil {
		if err := t.contract.Check(config, site.Reads, site.Writes); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// names are a node's own names, sorted.
func names(bindings []graph.Binding) []string {
	out := make([]string, len(bindings))
	for i, b := range bindings {
		out[i] = b.Name
	}
	slices.Sort(out)
	return out
}
