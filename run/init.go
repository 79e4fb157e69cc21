package run

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// Initial is what a run starts with.
type Initial struct {
	Run      string
	Input    value.Value // a JSON object; nil is an empty one
	StartAt  time.Time   // zero or past: now
	Metadata map[string]string
}

// Init proposes the first commit of a run: status running, step and sequence 1, the
// nodes that the start's edges lead to pending, due at StartAt. It answers
// *claim.ArgumentError for a bad run id, metadata or now, *InputError (which lists
// every problem) when the input does not fit the graph, and *value.LimitError when
// it is too large.
//
// A guard of the start that fails does not make Init fail: the run is started, and
// its first plan fails it with CodeGuard.
func (m *Machine) Init(in Initial, now time.Time) (Proposal, error) {
	if err := m.ready(); err != nil {
		return Proposal{}, err
	}
	now, err := checkNow(now)
	if err != nil {
		return Proposal{}, err
	}
	if err := claim.CheckID("run id", in.Run); err != nil {
		return Proposal{}, err
	}
	if err := checkMetadata(in.Metadata); err != nil {
		return Proposal{}, err
	}
	if err := value.Check("the input of the run", len(in.Input), m.limits.Document); err != nil {
		return Proposal{}, err
	}
	input, err := m.input(in.Input)
	if err != nil {
		return Proposal{}, err
	}
	d := &Document{
		ID: in.Run, Graph: m.graph.Ref(), Status: Running, Step: 1,
		Input: input, State: m.defaults(), StartedAt: now,
	}
	if len(in.Metadata) > 0 {
		d.Metadata = maps.Clone(in.Metadata)
	}
	c := m.started(d, now)
	if f := m.fire(c, []string{graph.Start}); f != nil {
		c = begin(d, now, 3)
	}
	fact, schedule := c.emit(EventRunInitialized), checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
	if at := instant(in.StartAt); at.After(now) {
		fact.Wake, schedule = at, releaseAt(at)
	}
	p := c.propose(checkpoint.RunInitialized, schedule)
	if err := m.fitsGoing(p); err != nil {
		return Proposal{}, err
	}
	return p, nil
}

// started is the commit in which the guards of the start are evaluated: the given
// inputs have changed.
func (m *Machine) started(d *Document, now time.Time) *commit {
	c := begin(d, now, 3)
	for _, in := range d.Input {
		if in.Version > 0 {
			c.next.Changed = append(c.next.Changed, in.Name)
		}
	}
	return c
}

// defaults is the state before anything is written.
func (m *Machine) defaults() []Channel {
	var out []Channel
	for _, f := range m.graph.Fields() {
		if f.Default != nil {
			out = append(out, Channel{Name: f.Name, Value: f.Default})
		}
	}
	return out
}

// input takes the input's members apart and checks them all.
func (m *Machine) input(raw value.Value) ([]Channel, error) {
	given, err := inputMembers(raw)
	if err != nil {
		return nil, err
	}
	var problems []InputProblem
	problem := func(path, format string, args ...any) {
		problems = append(problems, InputProblem{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	var out []Channel
	for _, in := range m.graph.Inputs() {
		path := pointer(in.Name)
		v, ok := given[in.Name]
		delete(given, in.Name)
		switch {
		case !ok && in.Default != nil:
			out = append(out, Channel{Name: in.Name, Value: in.Default})
		case !ok && in.Required:
			problem(path, "is required: give it a value")
		case !ok:
		default:
			if err := value.Check("the input "+in.Name, len(v), m.limits.Value); err != nil {
				return nil, err
			}
			if err := in.CheckValue(v); err != nil {
				bad := asValueError(err)
				problem(path+bad.Path, "%s", bad.Reason)
				continue
			}
			out = append(out, Channel{Name: in.Name, Value: v, Version: 1})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if field := m.graph.Channel(name); field != nil {
			problem(pointer(name), "is a field, which only nodes write: declare it as an input, or leave it out")
			continue
		}
		problem(pointer(name), "is not an input of the graph: declare it, or leave it out")
	}
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b InputProblem) int { return strings.Compare(a.Path, b.Path) })
		return nil, &InputError{Problems: problems}
	}
	return out, nil
}

// inputMembers are the members of an input object.
func inputMembers(raw value.Value) (map[string]value.Value, error) {
	out := map[string]value.Value{}
	if len(raw) == 0 {
		return out, nil
	}
	raw, err := value.Parse(raw)
	if err != nil {
		bad := asValueError(err)
		return nil, &InputError{Problems: []InputProblem{{Path: bad.Path, Reason: "is refused: " + bad.Reason}}}
	}
	if raw[0] != '{' {
		return nil, &InputError{Problems: []InputProblem{{Reason: "is not a JSON object: give an object with a member for each input"}}}
	}
	r := decoderOf(raw)
	r.open('{', "an object")
	for r.more('}') {
		name := r.text()
		out[name] = r.value()
	}
	return out, r.err
}

func asValueError(err error) *value.Error {
	var bad *value.Error
	if errors.As(err, &bad) {
		return bad
	}
	return &value.Error{Reason: err.Error()}
}

// pointer is the JSON Pointer of a member.
func pointer(name string) string {
	return string(jsontext.Pointer("").AppendToken(name))
}
