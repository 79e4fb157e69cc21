package value_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/value"
)

type money struct{ cents int64 }

func (m money) MarshalJSON() ([]byte, error) { return json.Marshal(float64(m.cents) / 100) }

type label string

func (l label) MarshalText() ([]byte, error) { return []byte("<" + string(l) + ">"), nil }

var errBoom = errors.New("boom")

type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, errBoom }

type twice struct{}

func (twice) MarshalJSON() ([]byte, error) { return []byte(`{"x":{"a":1,"a":2}}`), nil }

type malformed struct{}

func (malformed) MarshalJSON() ([]byte, error) {
	return jsontext.AppendFormat(nil, `{"k":[1,nope]}`)
}

type embedded struct {
	Shared int `json:"shared"`
}

type order struct {
	embedded
	ID      int64           `json:"id"`
	Note    string          `json:"note,omitempty"`
	Until   time.Time       `json:"until,omitzero"`
	Count   int             `json:",string"`
	Secret  string          `json:"-"`
	Raw     json.RawMessage `json:"raw,omitempty"`
	Number  json.Number     `json:"number,omitempty"`
	Any     any             `json:"any,omitempty"`
	private int
}

func TestGoValuesEncodeAsEncodingJSONWould(t *testing.T) {
	for _, c := range []struct {
		name string
		in   any
		want string
	}{
		{"nil", nil, `null`},
		{"an absent value", value.Value(nil), `null`},
		{"a nil pointer", (*order)(nil), `null`},
		{"a nil slice", []int(nil), `null`},
		{"a nil map", map[string]int(nil), `null`},
		{"booleans", []bool{true, false}, `[true,false]`},
		{"true", true, `true`},
		{"bytes as base64", []byte{0xff, 0}, `"/wA="`},
		{"a duration in nanoseconds", time.Second, `1000000000`},
		{"an instant", time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), `"2026-01-02T03:04:05.000006Z"`},
		{"integers beyond 2^53", []any{int64(math.MaxInt64), uint64(math.MaxUint64)}, `[9223372036854775807,18446744073709551615]`},
		{"floats in their shortest form", []float64{0.1, 1, 1e21, 1e-7, 5e-324}, `[0.1,1,1e+21,1e-7,5e-324]`},
		{"a float32 in its own precision", float32(0.1), `0.1`},
		{"text is not escaped for HTML", "<a> & \u2028", "\"<a> & \u2028\""},
		{"NUL in text", "a\x00b", `"a\u0000b"`},
		{"maps are sorted", map[string]int{"b": 1, "a": 2}, `{"a":2,"b":1}`},
		{"map keys may be integers", map[int]bool{2: true, 10: false}, `{"10":false,"2":true}`},
		{"raw text is canonicalized and keeps its digits", json.RawMessage(` {"b":1.00, "a":1e400} `), `{"a":1e400,"b":1.00}`},
		{"numbers keep their digits", []json.Number{"12345678901234567890.10", "1E5", ""}, `[12345678901234567890.10,1E5,0]`},
		{"methods are called", []any{money{1050}, label("a")}, `[10.5,"<a>"]`},
		{"tags are honoured", order{embedded: embedded{1}, ID: 7, Count: 3, Secret: "s", private: 1}, `{"Count":"3","id":7,"shared":1}`},
		{
			"nested raw text and numbers",
			order{Raw: json.RawMessage("[1.0]"), Number: "2.50", Any: map[string]any{"x": json.Number("3e2")}},
			`{"Count":"0","any":{"x":3e2},"id":0,"number":2.50,"raw":[1.0],"shared":0}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := value.Of(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestGoValuesWithoutJSONFormAreRefusedWithTheirPlace(t *testing.T) {
	cycle := map[string]any{}
	cycle["again"] = cycle
	for _, c := range []struct {
		name, path string
		in         any
	}{
		{"NaN", "", math.NaN()},
		{"NaN deep in structs", "/any/0/any/x~1y", order{Any: []order{{Any: map[string]float64{"x/y": math.NaN()}}}}},
		{"infinity", "/1", []float64{0, math.Inf(-1)}},
		{"invalid UTF-8", "", "a\xff"},
		{"invalid UTF-8 deep", "/any/0/note", order{Any: []order{{Note: "\xc3("}}}},
		{"invalid UTF-8 in a key", "/a", map[string]any{"a": map[string]int{"\xff": 1}}},
		{"a channel", "/any", order{Any: make(chan int)}},
		{"a function", "", func() {}},
		{"a complex number", "/0", []any{1i}},
		{"a reserved name", "/any/$x", order{Any: map[string]int{"$x": 1}}},
		{"a method that fails", "/a", map[string]any{"a": failing{}}},
		{"a method that writes a name twice", "/a/x/a", map[string]any{"a": twice{}}},
		{"a method that fails at a place of its own", "/a/k/1", map[string]any{"a": malformed{}}},
		{"raw text that is not JSON", "/raw/1", order{Raw: json.RawMessage("[1,x]")}},
		{"empty raw text", "/0", []any{json.RawMessage{}}},
		{"a number that is none", "/number", order{Number: "1e"}},
		{"a number that is text", "/number", order{Number: `"1"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := value.Of(c.in)
			wantRefused(t, "Of", err, c.path)
		})
	}
	if _, err := value.Of(cycle); !errors.Is(err, value.ErrInvalid) {
		t.Errorf("a cycle: %v", err)
	}
	if _, err := value.Of(failing{}); !errors.Is(err, errBoom) {
		t.Errorf("the error of a method is wrapped: %v", err)
	}
}
