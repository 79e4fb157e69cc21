package graph

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/value"
)

// writesOf splits "a | b" into writes.
func writesOf(text string) []value.Value {
	if text == "" {
		return nil
	}
	var out []value.Value
	for one := range strings.SplitSeq(text, " | ") {
		out = append(out, raw(one))
	}
	return out
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name      string
		reducer   Reducer
		committed string // "": never written
		writes    string // separated by " | "
		want      string
	}{
		{"replace takes the last", Reducer{}, `1`, `2 | 3`, `3`},
		{"replace by name", Reducer{Name: "replace"}, ``, `null`, `null`},
		{"without writes the committed value stays", Reducer{Name: "append"}, `[1]`, ``, `[1]`},
		{"without writes nothing stays nothing", Reducer{Name: "sum"}, ``, ``, ``},
		{"first takes the first write", Reducer{Name: "first"}, ``, `1 | 2`, `1`},
		{"first keeps what is committed", Reducer{Name: "first"}, `0`, `1 | 2`, `0`},
		{"first keeps a committed null", Reducer{Name: "first"}, `null`, `1`, `null`},

		{"append adds elements and single values", Reducer{Name: "append"}, `[1]`, `[2,3] | 4 | {"a":1} | []`, `[1,2,3,4,{"a":1}]`},
		{"append begins a list", Reducer{Name: "append"}, ``, `1`, `[1]`},
		{"append of an empty list begins one", Reducer{Name: "append"}, ``, `[]`, `[]`},
		{"append adds a list within a list as one element", Reducer{Name: "append"}, `[]`, `[[1,2]]`, `[[1,2]]`},
		{"append keeps digits", Reducer{Name: "append"}, `[1.10]`, `[9007199254740993] | 1e400`, `[1.10,9007199254740993,1e400]`},
		{"append takes strings for what they are", Reducer{Name: "append", Max: 9}, `["a,]","\\"]`, `["\"],[",{"b":["}","]"]}] | "[x"`, `["a,]","\\","\"],[",{"b":["}","]"]},"[x"]`},
		{"append unique leaves out equals", Reducer{Name: "append", Unique: true}, `[1,1,"a"]`, `[1,2] | "a" | 2 | 1.0`, `[1,1,"a",2,1.0]`},
		{"append max keeps the last", Reducer{Name: "append", Max: 2}, `[1,2,3]`, `4`, `[3,4]`},
		{"append max within the bound", Reducer{Name: "append", Max: 3}, `[1]`, `2`, `[1,2]`},
		{"append unique and max", Reducer{Name: "append", Max: 2, Unique: true}, `[1,2]`, `[1,3]`, `[2,3]`},

		{"union leaves out equals", Reducer{Name: "union"}, `["a"]`, `["b","a"] | "b" | "c"`, `["a","b","c"]`},
		{"union by replaces in place", Reducer{Name: "union", By: "id"}, `[{"id":1,"v":"a"},{"id":2}]`, `{"id":1,"v":"b"} | [{"id":3},{"id":2,"w":0}]`, `[{"id":1,"v":"b"},{"id":2,"w":0},{"id":3}]`},
		{"union by compares values, not texts alone", Reducer{Name: "union", By: "id"}, `[{"id":1}]`, `{"id":"1"}`, `[{"id":1},{"id":"1"}]`},

		{"merge replaces members", Reducer{Name: "merge"}, `{"a":1,"b":{"x":1}}`, `{"b":{"y":2}} | {"c":null}`, `{"a":1,"b":{"y":2},"c":null}`},
		{"merge deep goes into objects", Reducer{Name: "merge", Deep: true}, `{"a":{"x":1,"l":[1]},"b":1}`, `{"a":{"y":{"z":1}}} | {"a":{"y":{"w":2},"l":[2]},"b":{"c":1}}`, `{"a":{"l":[2],"x":1,"y":{"w":2,"z":1}},"b":{"c":1}}`},
		{"merge begins an object", Reducer{Name: "merge"}, ``, `{"é\"":1.10}`, `{"é\"":1.10}`},

		{"sum of integers is exact", Reducer{Name: "sum"}, `9007199254740993`, `1 | -2`, `9007199254740992`},
		{"sum begins at zero", Reducer{Name: "sum"}, ``, `5`, `5`},
		{"sum reaches both ends", Reducer{Name: "sum"}, `9223372036854775806`, `1 | -9223372036854775807 | -9223372036854775808`, `-9223372036854775808`},
		{"sum with a float is a float", Reducer{Name: "sum"}, `1`, `0.5 | 2`, `3.5`},
		{"sum of floats keeps the order", Reducer{Name: "sum"}, `0.1`, `0.2 | 0.3`, `0.6000000000000001`},
		{"sum of floats in another order", Reducer{Name: "sum"}, `0.3`, `0.2 | 0.1`, `0.6`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var committed value.Value
			if c.committed != "" {
				committed = raw(c.committed)
			}
			got, err := c.reducer.Fold(committed, writesOf(c.writes))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want || (c.want == "") != (got == nil) {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
}

// deepest is an object as deep as a value may be.
var deepest = strings.Repeat(`{"a":`, value.MaxDepth) + `1` + strings.Repeat(`}`, value.MaxDepth)

func TestFoldThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name      string
		reducer   Reducer
		committed string
		writes    string
		want      string
	}{
		{"sum over", Reducer{Name: "sum"}, `9223372036854775807`, `1`, "the sum leaves int64"},
		{"sum under", Reducer{Name: "sum"}, `-9223372036854775808`, `-1`, "the sum leaves int64"},
		{"sum of a huge integer", Reducer{Name: "sum"}, ``, `9223372036854775808`, "outside int64"},
		{"sum of a huge float", Reducer{Name: "sum"}, ``, `1e999`, "outside float64"},
		{"sum to infinity", Reducer{Name: "sum"}, `1e308`, `1e308`, "outside float64"},
		{"sum of a string", Reducer{Name: "sum"}, `1`, `"1"`, "a value is a string"},
		{"sum onto null", Reducer{Name: "sum"}, `null`, `1`, "a value is null"},
		{"append onto no list", Reducer{Name: "append"}, `{"a":1}`, `1`, "the field's value is an object, not a list"},
		{"union by of no object", Reducer{Name: "union", By: "id"}, `[]`, `1`, `an element is a number, not an object with the member "id"`},
		{"union by without the member", Reducer{Name: "union", By: "id"}, `[]`, `{"a":1}`, `an element has no member "id"`},
		{"union by with a bad committed element", Reducer{Name: "union", By: "id"}, `[1]`, `{"id":1}`, `not an object`},
		{"merge of a list", Reducer{Name: "merge"}, `{}`, `[1]`, "a write is an array: write an object"},
		{"merge onto a list", Reducer{Name: "merge"}, `[]`, `{}`, "the field's value is an array, not an object"},
		{"append of an element that is too deep", Reducer{Name: "append"}, ``, deepest, "nested too deeply"},
		{"union of an element that is too deep", Reducer{Name: "union", By: "a"}, ``, deepest, "nested too deeply"},
		{"unknown", Reducer{Name: "latest"}, ``, `1`, "there is no such reducer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var committed value.Value
			if c.committed != "" {
				committed = raw(c.committed)
			}
			_, err := c.reducer.Fold(committed, writesOf(c.writes))
			var wrong *ReduceError
			if !errors.As(err, &wrong) || !errors.Is(err, ErrReduce) {
				t.Fatalf("got %v, want *ReduceError", err)
			}
			if !strings.Contains(wrong.Reason, c.want) {
				t.Fatalf("got %q, want %q", wrong.Reason, c.want)
			}
		})
	}
}

func TestFoldLeavesItsArgumentsAlone(t *testing.T) {
	committed := `[{"id":1,"v":"a"},{"id":2}]`
	for _, r := range []Reducer{{Name: "append"}, {Name: "append", Max: 1}, {Name: "union", By: "id"}} {
		c, w := raw(committed), raw(`[{"id":1,"v":"b"}]`)
		if _, err := r.Fold(c, []value.Value{w, w}); err != nil {
			t.Fatal(err)
		}
		if string(c) != committed || string(w) != `[{"id":1,"v":"b"}]` {
			t.Fatalf("%v changed its arguments: %s, %s", r, c, w)
		}
	}
}

// The result of every reducer is canonical, and folding in two supersteps what
// could be folded in one gives the same, for reducers that build on the value.
func TestFoldIsCanonicalAndAssociative(t *testing.T) {
	scalar := rapid.SampledFrom([]string{`1`, `2`, `1.0`, `"a"`, `"\u0000"`, `null`, `true`, `[1]`, `{"a":{"b":1}}`})
	object := rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":{"x":1}}`, `{"a":{"y":[1]},"é":null}`, `{"id":1}`, `{"id":2,"v":1}`})
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom([]Reducer{
			{},
			{Name: "first"},
			{Name: "append"},
			{Name: "append", Unique: true},
			{Name: "append", Max: 3},
			{Name: "union"},
			{Name: "merge"},
			{Name: "merge", Deep: true},
			{Name: "sum"},
		}).Draw(t, "reducer")
		var one *rapid.Generator[string]
		switch r.Name {
		case "merge":
			one = object
		case "sum":
			one = rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(rapid.IntRange(-1000, 1000).Draw(t, "n")) })
		default:
			one = scalar
		}
		var writes []value.Value
		for _, w := range rapid.SliceOfN(one, 1, 6).Draw(t, "writes") {
			writes = append(writes, raw(w))
		}
		whole, err := r.Fold(nil, writes)
		if err != nil {
			t.Fatal(err)
		}
		if canonical, err := value.Canonical(whole); err != nil || !value.Equal(canonical, whole) {
			t.Fatalf("%s is not canonical: %v", whole, err)
		}
		cut := rapid.IntRange(0, len(writes)).Draw(t, "cut")
		half, err := r.Fold(nil, writes[:cut])
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Fold(half, writes[cut:])
		if err != nil {
			t.Fatal(err)
		}
		if !value.Equal(again, whole) {
			t.Fatalf("in two steps %s, in one %s", again, whole)
		}
	})
}

func TestSumNeverWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.OneOf(rapid.Int64(), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+3))
		a, b := near.Draw(t, "a"), near.Draw(t, "b")
		got, err := Reducer{Name: "sum"}.Fold(strconv.AppendInt(nil, a, 10), []value.Value{strconv.AppendInt(nil, b, 10)})
		exact := (b <= 0 || a <= math.MaxInt64-b) && (b >= 0 || a >= math.MinInt64-b)
		if exact != (err == nil) || exact && string(got) != strconv.FormatInt(a+b, 10) {
			t.Fatalf("%d + %d: %s, %v", a, b, got, err)
		}
	})
}

func channel(t *testing.T, reducer Reducer, text string) *Channel {
	t.Helper()
	return &Channel{Name: "f", Schema: schema(t, text), Reducer: reducer}
}

func TestCheckWriteJudgesThePartThatIsWritten(t *testing.T) {
	list := `{"type":"array","items":{"type":"integer"},"minItems":3}`
	object := `{"type":"object","properties":{"a":{"type":"integer"},"o":{"type":"object","required":["x"]}},"required":["a"],"additionalProperties":false}`
	for _, c := range []struct {
		name    string
		reducer Reducer
		schema  string
		write   string
		want    string // path: reason, "" for a fit
	}{
		{"replace fits", Reducer{}, `{"type":"integer"}`, `1`, ``},
		{"replace misfits", Reducer{}, `{"type":"integer"}`, `"1"`, `: must be of type integer, not string`},
		{"first misfits", Reducer{Name: "first"}, list, `[1]`, `:`},
		{"append of elements", Reducer{Name: "append"}, list, `[1,2]`, ``},
		{"append of one element", Reducer{Name: "append"}, list, `7`, ``},
		{"append of a wrong element", Reducer{Name: "append"}, list, `[1,"x"]`, `/1: must be of type integer, not string`},
		{"append of one wrong element", Reducer{Name: "append"}, list, `"x"`, `: must be of type integer, not string`},
		{"append without item schema", Reducer{Name: "append"}, `{"type":"array"}`, `"x"`, ``},
		{"union of a wrong element", Reducer{Name: "union"}, list, `["x"]`, `/0: must`},
		{"merge of a part", Reducer{Name: "merge"}, object, `{"o":{"x":1}}`, ``},
		{"merge of a wrong part", Reducer{Name: "merge"}, object, `{"a":"x"}`, `/a: must be of type integer, not string`},
		{"merge of an unknown part", Reducer{Name: "merge"}, object, `{"b":1}`, `/b: the schema does not allow this member`},
		{"merge of an incomplete part", Reducer{Name: "merge"}, object, `{"o":{}}`, `/o:`},
		{"deep merge of an incomplete part", Reducer{Name: "merge", Deep: true}, object, `{"o":{}}`, ``},
		{"merge of no object", Reducer{Name: "merge"}, object, `[1]`, `: f is merged, so write an object, not an array`},
		{"sum of a number", Reducer{Name: "sum"}, `{"type":"integer","minimum":10}`, `1`, ``},
		{"sum of a string", Reducer{Name: "sum"}, `{"type":"integer"}`, `"1"`, `: f is added up, so write a number, not a string`},
		{"nothing", Reducer{}, `{}`, ``, `: there is no value`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := channel(t, c.reducer, c.schema).CheckWrite(raw(c.write))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var wrong *value.Error
			if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Path+": "+wrong.Reason, c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestChannelFoldChecksTheResult(t *testing.T) {
	ch := channel(t, Reducer{Name: "append"}, `{"type":"array","maxItems":2}`)
	if _, err := ch.Fold(raw(`[1,2]`), 1, writesOf(`3`)); !errors.Is(err, value.ErrInvalid) {
		t.Fatalf("a third element was folded: %v", err)
	}
	if got, err := ch.Fold(raw(`[1]`), 1, writesOf(`3`)); err != nil || string(got) != `[1,3]` {
		t.Fatal(string(got), err)
	}
}

func TestFirstTakesTheDefaultForUnwritten(t *testing.T) {
	ch := channel(t, Reducer{Name: "first"}, `{}`)
	if got, err := ch.Fold(raw(`"default"`), 0, writesOf(`1 | 2`)); err != nil || string(got) != `1` {
		t.Fatal(string(got), err)
	}
	if got, err := ch.Fold(raw(`"written"`), 1, writesOf(`1 | 2`)); err != nil || string(got) != `"written"` {
		t.Fatal(string(got), err)
	}
	sum := channel(t, Reducer{Name: "sum"}, `{}`)
	if got, err := sum.Fold(raw(`10`), 0, writesOf(`1`)); err != nil || string(got) != `11` {
		t.Fatal(string(got), err)
	}
}

func TestFoldOfWhatIsNotCanonicalDoesNotPanic(t *testing.T) {
	texts := []string{``, `[`, `]`, `{`, `[,]`, `[1,]`, `["`, `["\`, `{"a"`, `[[1]`, `1]`, `"`, `-`, ` [1]`, `[{"id":1}`, `nul`}
	for _, name := range append(reducerNames, "union by", "append max") {
		r := Reducer{Name: name}
		switch name {
		case "union by":
			r = Reducer{Name: "union", By: "id"}
		case "append max":
			r = Reducer{Name: "append", Max: 2}
		}
		ch := channel(t, r, `{"type":["array","object"],"items":{"type":"integer"},"properties":{"a":{"type":"integer"}}}`)
		for _, committed := range texts {
			for _, write := range texts {
				_, _ = r.Fold(raw(committed), []value.Value{raw(write), nil})
				_, _ = ch.Fold(raw(committed), 1, []value.Value{raw(write)})
				_ = ch.CheckWrite(raw(write))
			}
		}
	}
}
