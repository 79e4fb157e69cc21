package graph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/value"
)

// states is a State for tests; it notes what is asked.
type states struct {
	values   map[string]value.Value
	changed  map[string]bool
	versions map[string]int64
	asked    map[string]int
}

func (s *states) Value(name string) value.Value {
	if s.asked != nil {
		s.asked[name]++
	}
	return s.values[name]
}
func (s *states) Changed(name string) bool  { return s.changed[name] }
func (s *states) Version(name string) int64 { return s.versions[name] }

// guarded is a graph with one guarded edge over typed fields.
func guarded(t testing.TB, when string) *CompiledEdge {
	t.Helper()
	doc := &Document{
		ID: "g",
		Fields: map[string]Field{
			"n": {Schema: raw(`{"type":"integer"}`)}, "x": {Schema: raw(`{"type":"number"}`)},
			"s": {Schema: raw(`{"type":["string","null"]}`)}, "flag": {Schema: raw(`{"type":"boolean"}`)},
			"sub-total": {Schema: raw(`{"type":"integer"}`)}, "any": {Schema: raw(`{}`)},
			"list": {Schema: raw(`{"type":"array","items":{"type":"integer"}}`)},
			"obj":  {Schema: raw(`{"type":"object","properties":{"a":{"type":"integer"}}}`)},
			"tree": {Schema: raw(`{"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"},"v":{"type":"integer"}}}},"$ref":"#/$defs/t"}`)},
		},
		Nodes: map[string]Node{"a": {Use: "noop"}},
		Edges: map[string]Edge{"s": {From: Sources{Start}, To: "a", When: when}, "f": {From: Sources{"a"}, To: Finish}},
	}
	c, err := Publish(doc, shop)
	if err != nil {
		t.Fatal(err)
	}
	return c.EdgesFrom(Start)[0]
}

func TestGuardSeesStateChangesAndVersions(t *testing.T) {
	s := &states{
		values: map[string]value.Value{
			"n": raw(`3`), "x": raw(`2.5`), "flag": raw(`true`), "sub-total": raw(`10`), "any": raw(`{"k":[1,"b"]}`),
			"list": raw(`[1,2,3]`), "obj": raw(`{"b":1}`), "tree": raw(`{"l":{"v":4}}`),
		},
		changed: map[string]bool{"n": true}, versions: map[string]int64{"n": 2},
	}
	for when, want := range map[string]bool{
		`state.n == 3`:                                 true,
		`state.n == 3.0`:                               true,
		`state.n > state.x`:                            true,
		`state.x < 2.6`:                                true,
		`state.flag`:                                   true,
		`not state.flag`:                               false,
		`state["sub-total"] == 10`:                     true,
		`state['sub-total'] > state.n * 4`:             false,
		`state.s == nil`:                               true,
		`state.s == "a"`:                               false,
		`state.s != "a"`:                               true,
		`(state.s ?? "none") == "none"`:                true,
		`state?.any?.zz?.y == nil`:                     true,
		`state.obj.a == nil`:                           true,
		`state.obj.b == 1`:                             true,
		`state.any.k[1] == "b"`:                        true,
		`state.tree.l.v == 4`:                          true,
		`state.tree.r == nil`:                          true,
		`all(state.list, # > 0)`:                       true,
		`state.list == [1, 2, 3]`:                      true,
		`2 in state.list`:                              true,
		`changed("n") and not changed("x")`:            true,
		`version("n") == 2 and version('x') == 0`:      true,
		`any(["n"], changed("x"))`:                     false,
		`let total = sum(state.list); total > state.n`: true,
		`state.n == nil`:                               false,
		`true`:                                         true,
	} {
		t.Run(when, func(t *testing.T) {
			e := guarded(t, when)
			if !e.Guarded() {
				t.Fatal("the edge has no guard")
			}
			for range 2 {
				if got, err := e.Eval(s); err != nil || got != want {
					t.Fatalf("got %v, %v, want %v", got, err, want)
				}
			}
		})
	}
}

func TestGuardThatFailsIsATypedError(t *testing.T) {
	s := &states{values: map[string]value.Value{"list": raw(`[1]`), "any": raw(`"x"`)}}
	for when, want := range map[string]string{
		`state.n > 1`:        "there is no nil > a number",
		`state.flag`:         "it gave nil, not true or false",
		`not state.flag`:     "a value is nil where true or false is needed",
		`state.any`:          "it gave a string, not true or false",
		`state.list[3] == 1`: "index out of range",
		`len(state.s) > 0`:   "invalid argument for len (type <nil>)",
		`all(1..9999999, any(1..9999999, false))`: "it used up its budget",
	} {
		t.Run(when, func(t *testing.T) {
			_, err := guarded(t, when).Eval(s)
			var wrong *ExpressionError
			if !errors.As(err, &wrong) || !errors.Is(err, ErrExpression) {
				t.Fatalf("got %v, want *ExpressionError", err)
			}
			if wrong.Expression != when || !strings.Contains(wrong.Reason, want) {
				t.Fatalf("got %q: %q, want %q", wrong.Expression, wrong.Reason, want)
			}
		})
	}
}

func TestEdgeWithoutGuardIsTrue(t *testing.T) {
	e := guarded(t, "")
	if got, err := e.Eval(nil); !got || err != nil || e.Guarded() {
		t.Fatal(got, err)
	}
}

func TestGuardAsksOnlyForTheFieldsItNames(t *testing.T) {
	s := &states{values: map[string]value.Value{"n": raw(`3`), "any": raw(`not decoded`)}, asked: map[string]int{}}
	got, err := guarded(t, `state.n > 1 and (changed("x") or state.n < 5) and state["n"] != 4`).Eval(s)
	if err != nil || !got {
		t.Fatal(got, err)
	}
	if fmt.Sprint(s.asked) != "map[n:1]" {
		t.Fatalf("asked for %v", s.asked)
	}
}

func TestGuardOverAnUndecodableValueIsATypedError(t *testing.T) {
	_, err := guarded(t, `state.any == 1`).Eval(&states{values: map[string]value.Value{"any": raw(`1e999`)}})
	if !errors.Is(err, ErrExpression) || !strings.Contains(err.Error(), "the value of any does not decode") {
		t.Fatal(err)
	}
}

// A schema whose properties refer to itself must not make typing a guard explode.
func TestRecursiveSchemaIsTypedInBoundedTime(t *testing.T) {
	properties := make([]string, 20)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{"$ref":"#/$defs/t"}`, i)
	}
	tree := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`
	e, err := CompileExpression(`t.p1.p2.p3.p4.p5.p6.p7.p8.p9.p10`, Variables{"t": schema(t, `{"$defs":{"t":`+tree+`},"$ref":"#/$defs/t"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Eval(map[string]value.Value{"t": raw(`{"p1":{"p2":{"p3":{"p4":{"p5":{"p6":{"p7":{"p8":{"p9":{"p10":1}}}}}}}}}}`)}); err != nil || string(got) != "1" {
		t.Fatal(string(got), err)
	}
}
