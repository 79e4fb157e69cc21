package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

type (
	base struct {
		Shared string `json:"shared"`
		Own    int
	}
	deep struct {
		base
		*More
		Name     string          `json:"name"`
		Maybe    *int            `json:"maybe"`
		Empty    string          `json:"empty,omitempty"`
		Zero     time.Time       `json:"zero,omitzero"`
		Raw      json.RawMessage `json:"raw"`
		Hidden   string          `json:"-"`
		internal string
	}
	More struct {
		Extra []string `json:"extra,omitempty"`
	}
	tree struct {
		Kids []tree `json:"kids"`
	}
	chain struct {
		Next *chain `json:"next"`
	}
	selfMade struct{ n int }
	texted   struct{ n int }
	level    string
)

func (selfMade) MarshalJSON() ([]byte, error)      { return []byte(`[1]`), nil }
func (*selfMade) UnmarshalJSON([]byte) error       { return nil }
func (texted) MarshalText() ([]byte, error)        { return []byte("t"), nil }
func (*texted) UnmarshalText([]byte) error         { return nil }
func (v *deep) use()                               { _ = v.internal }
func (v selfMade) use() int                        { return v.n }
func (v texted) use() int                          { return v.n }
func nothing[T any](context.Context, T) (T, error) { panic("not called") }

func TestFieldsAreBoundByJSONName(t *testing.T) {
	(&deep{}).use()
	typ := node.Of("t", 1, nothing[deep])
	if err := typ.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]graph.Port{
		"shared": {Schema: value.Value(`{"type":"string"}`), Required: true},
		"Own":    {Schema: value.Value(`{"type":"integer"}`), Required: true},
		"name":   {Schema: value.Value(`{"type":"string"}`), Required: true},
		"maybe":  {Schema: value.Value(`{"type":["null","integer"]}`)},
		"empty":  {Schema: value.Value(`{"type":"string"}`)},
		"zero":   {Schema: value.Value(`{"type":"string"}`)},
		"raw":    {Required: true},
		"extra":  {Schema: value.Value(`{"items":{"type":"string"},"type":"array"}`)},
	}
	if diff := cmp.Diff(want, typ.Contract().Reads); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, typ.Contract().Writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestPromotedFieldsAreReadAndWritten(t *testing.T) {
	typ := node.Of("t", 1, func(_ context.Context, in deep) (deep, error) { return in, nil })
	reads := map[string]string{"shared": `"s"`, "Own": "1", "name": `"n"`, "maybe": "null", "raw": `{"a":1.0}`, "extra": `["x"]`}
	want := `{"Own":1,"extra":["x"],"maybe":null,"name":"n","raw":{"a":1.0},"shared":"s"}`
	if got := text(place(t, typ, "", reads).run(t, t.Context()).Update()); got != want {
		t.Errorf("update %s, want %s", got, want)
	}
	delete(reads, "extra")
	delete(reads, "maybe")
	want = `{"Own":1,"maybe":null,"name":"n","raw":{"a":1.0},"shared":"s"}`
	if got := text(place(t, typ, "", reads).run(t, t.Context()).Update()); got != want {
		t.Errorf("update %s, want %s", got, want)
	}
}

func TestSchemasAreInferred(t *testing.T) {
	type inner struct {
		A int   `json:"a"`
		P *bool `json:"p"`
	}
	type odd struct {
		//lint:ignore U1000 inference looks at it
		level
		A int `json:"a,string"`
	}
	tests := map[string]struct{ got, want any }{
		"string":           {schemaOf[string], `{"type":"string"}`},
		"bool":             {schemaOf[bool], `{"type":"boolean"}`},
		"int64":            {schemaOf[int64], `{"type":"integer"}`},
		"uint":             {schemaOf[uint], `{"minimum":0,"type":"integer"}`},
		"int8":             {schemaOf[int8], `{"maximum":127,"minimum":-128,"type":"integer"}`},
		"float64":          {schemaOf[float64], `{"type":"number"}`},
		"number":           {schemaOf[json.Number], `{"type":"number"}`},
		"raw":              {schemaOf[json.RawMessage], ``},
		"any":              {schemaOf[any], ``},
		"pointer to any":   {schemaOf[*any], ``},
		"pointer to raw":   {schemaOf[*json.RawMessage], ``},
		"time":             {schemaOf[time.Time], `{"type":"string"}`},
		"duration":         {schemaOf[time.Duration], `{"type":"integer"}`},
		"big int":          {schemaOf[*big.Int], `{"type":["null","integer"]}`},
		"bytes":            {schemaOf[[]byte], `{"contentEncoding":"base64","type":"string"}`},
		"byte array":       {schemaOf[[2]byte], `{"items":{"maximum":255,"minimum":0,"type":"integer"},"maxItems":2,"minItems":2,"type":"array"}`},
		"slice":            {schemaOf[[]int], `{"items":{"type":"integer"},"type":"array"}`},
		"slice of any":     {schemaOf[[]any], `{"items":true,"type":"array"}`},
		"pointer to slice": {schemaOf[*[]int], `{"items":{"type":"integer"},"type":["null","array"]}`},
		"map":              {schemaOf[map[string]float32], `{"additionalProperties":{"type":"number"},"type":"object"}`},
		"struct":           {schemaOf[inner], `{"additionalProperties":false,"properties":{"a":{"type":"integer"},"p":{"type":["null","boolean"]}},"required":["a"],"type":"object"}`},
		"struct in slice":  {schemaOf[[]inner], `{"items":{"additionalProperties":false,"properties":{"a":{"type":"integer"},"p":{"type":["null","boolean"]}},"required":["a"],"type":"object"},"type":"array"}`},
		"text methods":     {schemaOf[netip.Addr], `{"type":"string"}`},
		"own text":         {schemaOf[texted], `{"type":"string"}`},
		"own JSON":         {schemaOf[selfMade], ``},
		"level":            {schemaOf[slog.Level], `{"type":"string"}`},
		"graph duration":   {schemaOf[graph.Duration], ``},
		"odd struct": {schemaOf[[]struct {
			A int `json:"a,string"`
		}], `{"items":{"type":"object"},"type":"array"}`},
	}
	_ = odd{}
	_, _ = selfMade{}.use(), texted{}.use()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.got.(func(*testing.T) string)(t)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

func schemaOf[T any](t *testing.T) string {
	typ := node.Of("t", 1, func(context.Context, struct{}) (struct{ X T }, error) { panic("not called") })
	if err := typ.Err(); err != nil {
		t.Fatal(err)
	}
	return string(typ.Contract().Writes["X"].Schema)
}

func TestAReadAdmitsMembersThatTheGoTypeDoesNotName(t *testing.T) {
	type item struct{ Name string }
	typ := node.Of("t", 1, func(_ context.Context, in struct{ Items []item }) (struct{ First string }, error) {
		return struct{ First string }{in.Items[0].Name}, nil
	})
	if got, want := string(typ.Contract().Reads["Items"].Schema), `{"items":{"properties":{"Name":{"type":"string"}},"required":["Name"],"type":"object"},"type":"array"}`; got != want {
		t.Errorf("schema %s, want %s", got, want)
	}
	r := place(t, typ, "", map[string]string{"Items": `[{"Name":"a","colour":"red"}]`}).run(t, t.Context())
	if got := text(r.Update()); got != `{"First":"a"}` {
		t.Errorf("update %s", got)
	}
}

func TestTypesThatCannotBeBoundAreRefused(t *testing.T) {
	type embedsTagged struct {
		base `json:"base"`
	}
	type embedsNamed struct{ Level level }
	type embedsString struct {
		//lint:ignore U1000 inference looks at it
		level
	}
	type embedsText struct {
		time.Time
		N int
	}
	type embedsPointer struct{ *base }
	type twice struct {
		A int `json:"B"`
		B int
	}
	type stringed struct {
		A int `json:"a,string"`
	}
	type badName struct {
		A int `json:"$a"`
	}
	type closed struct{ mu int }
	_ = closed{}.mu
	tests := map[string]struct {
		typ  node.Type
		want string
	}{
		"In is a number":              {inOf[int](), "In: int must be a struct"},
		"In is a slice":               {inOf[[]string](), "must be a struct"},
		"In is a pointer":             {inOf[*base](), "In: *node_test.base is a pointer, and must be the struct or map itself: leave out the *"},
		"In is a pointer to a number": {inOf[*int](), "must be a struct"},
		"In is any":                   {inOf[any](), "must be a struct"},
		"In has int keys":             {inOf[map[int]string](), "must be a struct"},
		"In encodes itself":           {inOf[selfMade](), "must be a struct"},
		"In is a time":                {inOf[time.Time](), "must be a struct"},
		"In holds a channel":          {inOf[struct{ C chan int }](), "no JSON form"},
		"In holds a function":         {inOf[struct{ F []func() }](), "no JSON form"},
		"In holds an interface":       {inOf[struct{ E error }](), "does not say what it holds"},
		"In is recursive":             {inOf[tree](), "contains itself"},
		"In chains":                   {inOf[chain](), "contains itself"},
		"embedded with a tag":         {inOf[embedsTagged](), "give it a name of its own"},
		"embedded string":             {inOf[embedsString](), "give it a name of its own"},
		"embedded time":               {inOf[embedsText](), "must be a struct"},
		"embedded pointer":            {inOf[embedsPointer](), "embed the struct itself"},
		"one name twice":              {inOf[twice](), "have the same JSON name"},
		"tag option":                  {inOf[stringed](), "use omitempty or omitzero only"},
		"reserved name":               {inOf[badName](), "is not a valid name"},
		"nothing exported":            {inOf[closed](), "no exported fields"},
		"Out is a number":             {node.Of("t", 1, func(context.Context, struct{}) (int, error) { return 0, nil }), "Out: int must be a struct"},
		"Config is a pointer":         {node.Configured("t", 1, func(context.Context, *base, struct{}) (struct{}, error) { return struct{}{}, nil }), "Config: *node_test.base is a pointer"},
		"Config is a number":          {node.Configured("t", 1, func(context.Context, int, struct{}) (struct{}, error) { return struct{}{}, nil }), "Config: int must be a struct"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := node.NewRegistry().Add(tt.typ).Err()
			var bad *node.TypeError
			if !errors.Is(err, node.ErrInvalidType) || !errors.As(err, &bad) {
				t.Fatalf("error %v, want *TypeError", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
	if err := node.NewRegistry().Add(inOf[embedsNamed]()).Err(); err != nil {
		t.Error(err)
	}
}

func inOf[In any]() node.Type {
	return node.Of("t", 1, func(context.Context, In) (struct{}, error) { return struct{}{}, nil })
}

// copier passes what it reads on.
func copier[T any]() node.Type {
	type in struct{ V T }
	return node.Of("t", 1, func(_ context.Context, v in) (struct{ W T }, error) { return struct{ W T }{v.V}, nil })
}

func TestValuesKeepTheirDigits(t *testing.T) {
	tests := map[string]struct {
		typ       node.Type
		raw, want string
	}{
		"int64":          {copier[int64](), "9223372036854775807", "9223372036854775807"},
		"2^53+1":         {copier[int64](), "9007199254740993", "9007199254740993"},
		"uint64":         {copier[uint64](), "18446744073709551615", "18446744073709551615"},
		"number":         {copier[json.Number](), "123456789012345678901234567890.50", "123456789012345678901234567890.50"},
		"raw":            {copier[json.RawMessage](), "1.0e400", "1.0e400"},
		"raw null":       {copier[json.RawMessage](), "null", "null"},
		"any":            {copier[any](), "9007199254740993", "9007199254740993"},
		"any within":     {copier[any](), `{"a":[9007199254740993,1.5]}`, `{"a":[9007199254740993,1.5]}`},
		"map of any":     {copier[map[string]any](), `{"a":9007199254740993}`, `{"a":9007199254740993}`},
		"big":            {copier[*big.Int](), "123456789012345678901234567890", "123456789012345678901234567890"},
		"pointer null":   {copier[*int](), "null", "null"},
		"pointer":        {copier[*int](), "7", "7"},
		"HTML":           {copier[string](), `"<&>"`, `"<&>"`},
		"NUL":            {copier[string](), `"\u0000"`, `"\u0000"`},
		"time":           {copier[time.Time](), `"2030-01-02T03:04:05.000006Z"`, `"2030-01-02T03:04:05.000006Z"`},
		"bytes":          {copier[[]byte](), `"AP8="`, `"AP8="`},
		"nanoseconds":    {copier[time.Duration](), "1500", "1500"},
		"empty slice":    {copier[[]int](), "[]", "[]"},
		"sorted keys":    {copier[map[string]int](), `{"a":1,"b":2}`, `{"a":1,"b":2}`},
		"null in a list": {copier[[]*int](), "[null,1]", "[null,1]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := place(t, tt.typ, "", map[string]string{"V": tt.raw}).run(t, t.Context())
			if diff := cmp.Diff(`{"W":`+tt.want+`}`, text(r.Update())); diff != "" {
				f, _ := r.Failure()
				t.Errorf("update (-want +got):\n%s%v", diff, f)
			}
		})
	}
}

func TestAReadThatDoesNotFitIsAPermanentFailureWithItsPath(t *testing.T) {
	type recipe struct {
		Name    string `json:"name"`
		Minutes int8   `json:"minutes"`
	}
	type in struct {
		Recipes []recipe    `json:"recipes"`
		Count   *int        `json:"count"`
		Exact   json.Number `json:"exact,omitempty"`
	}
	typ := node.Of("t", 1, func(context.Context, in) (struct{}, error) {
		t.Error("the function was called")
		return struct{}{}, nil
	})
	tests := map[string]struct {
		reads map[string]string
		want  string
	}{
		"wrong type":   {map[string]string{"recipes": `[{"name":"a"},{"name":3}]`}, "at /recipes/1/name: a number does not fit the Go type string"},
		"overflow":     {map[string]string{"recipes": `[{"minutes":1000}]`}, "at /recipes/0/minutes"},
		"not a list":   {map[string]string{"recipes": `{}`}, "at /recipes: an object does not fit"},
		"fraction":     {map[string]string{"recipes": `[]`, "count": "1.5"}, "at /count"},
		"beyond int64": {map[string]string{"recipes": `[]`, "count": "9223372036854775808"}, "at /count"},
		"absent":       {map[string]string{}, "at /recipes: nothing was written to it yet"},
		"null":         {map[string]string{"recipes": "null"}, "at /recipes: null does not fit: make the Go field a pointer"},
		"not a number": {map[string]string{"recipes": `[]`, "exact": `"7"`}, "at /exact"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := mustFailure(t, place(t, typ, "", tt.reads).run(t, t.Context()), run.ResultPermanent)
			if f.Code != run.CodeError || !strings.Contains(f.Message, tt.want) {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
			if strings.Contains(f.Message, "1000") || strings.Contains(f.Message, "9223372036854775808") {
				t.Errorf("the failure repeats the data: %s", f.Message)
			}
		})
	}
}

func TestWhatEncodingLeavesOutIsNotWritten(t *testing.T) {
	type out struct {
		Always  []int          `json:"always"`
		Objects map[string]int `json:"objects"`
		Pointer *string        `json:"pointer"`
		Empty   int            `json:"empty,omitempty"`
		Flag    bool           `json:"flag,omitempty"`
		Zero    time.Time      `json:"zero,omitzero"`
		List    []string       `json:"list,omitempty"`
	}
	full := "x"
	tests := map[string]struct {
		out  out
		want string
	}{
		"zero": {out{}, `{"always":[],"objects":{},"pointer":null}`},
		"full": {
			out{Always: []int{1}, Objects: map[string]int{"a": 1}, Pointer: &full, Empty: 2, Flag: true, Zero: noon, List: []string{"a"}},
			`{"always":[1],"empty":2,"flag":true,"list":["a"],"objects":{"a":1},"pointer":"x","zero":"2030-01-02T12:00:00Z"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			typ := node.Of("t", 1, func(context.Context, struct{}) (out, error) { return tt.out, nil })
			r := place(t, typ, "", nil).run(t, t.Context())
			if diff := cmp.Diff(tt.want, text(r.Update())); diff != "" {
				t.Errorf("update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUpdateThatIsNotJSONIsAPermanentFailureWithItsPath(t *testing.T) {
	type out struct {
		V any `json:"v"`
	}
	tests := map[string]struct {
		v    any
		want string
	}{
		"NaN":           {math.NaN(), "at /v"},
		"infinity":      {[]float64{1, math.Inf(1)}, "at /v/1"},
		"bad UTF-8":     {map[string]string{"a": "\xff"}, "at /v/a"},
		"reserved name": {map[string]any{"a": map[string]int{"$x": 1}}, "at /v/a/$x"},
		"bad number":    {json.Number("1x"), "at /v"},
		"bad raw":       {json.RawMessage("{"), "at /v"},
		"function":      {func() {}, "at /v"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			typ := node.Of("t", 1, func(context.Context, struct{}) (out, error) { return out{tt.v}, nil })
			f := mustFailure(t, place(t, typ, "", nil).run(t, t.Context()), run.ResultPermanent)
			if f.Code != run.CodeInvalidUpdate || !strings.Contains(f.Message, tt.want) {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
		})
	}
}

func TestAWriteTheGraphDoesNotBindIsDropped(t *testing.T) {
	typ := node.Of("t", 1, func(context.Context, struct{}) (struct{ A, B int }, error) { return struct{ A, B int }{1, 2}, nil })
	s := place(t, typ, "", nil)
	s.call.Writes = []string{"B"}
	if got := text(s.run(t, t.Context()).Update()); got != `{"B":2}` {
		t.Errorf("update %s", got)
	}
}

func TestAMapReadsAndWritesWhatTheGraphDecides(t *testing.T) {
	typ := node.Of("t", 1, func(_ context.Context, in map[string]int64) (map[string]any, error) {
		return map[string]any{"sum": in["a"] + in["b"], "seen": len(in)}, nil
	})
	c := typ.Contract()
	if !c.OpenReads || !c.OpenWrites || c.Reads != nil || c.Writes != nil {
		t.Errorf("contract %+v", c)
	}
	r := place(t, typ, "", map[string]string{"a": "9007199254740993", "b": "1"}, "sum", "seen").run(t, t.Context())
	if got := text(r.Update()); got != `{"seen":2,"sum":9007199254740994}` {
		t.Errorf("update %s", got)
	}
	f := mustFailure(t, place(t, typ, "", map[string]string{"a-b": `"x"`}).run(t, t.Context()), run.ResultPermanent)
	if !strings.Contains(f.Message, "at /a-b") {
		t.Errorf("failure %+v", f)
	}
	empty := node.Of("t", 1, func(context.Context, struct{}) (map[string]int, error) { return nil, nil })
	if r := place(t, empty, "", nil).run(t, t.Context()); r.Kind() != run.ResultCompleted || len(r.Update()) != 0 {
		t.Errorf("result %+v", r)
	}
}

func TestAConfigIsDecodedOnceForAGraph(t *testing.T) {
	type config struct {
		Strict bool          `json:"strict"`
		Big    int64         `json:"big"`
		Opt    *string       `json:"opt"`
		After  time.Duration `json:"after,omitempty"`
		Inner  struct {
			N *int `json:"n"`
		} `json:"inner"`
	}
	var seen []*config
	typ := node.Configured("t", 1, func(_ context.Context, c *struct{}, _ struct{}) (struct{}, error) { return struct{}{}, nil })
	if typ.Err() == nil {
		t.Error("a pointer config was accepted")
	}
	decoded := 0
	counted := node.Configured("t", 1, func(_ context.Context, c struct {
		config
		Count counting `json:"count"`
	}, _ struct{},
	) (struct{}, error) {
		seen = append(seen, &c.config)
		decoded = *c.Count.n
		return struct{}{}, nil
	})
	s := place(t, counted, `{"strict":true,"big":9007199254740993,"inner":{},"count":0}`, nil)
	decodings = 0
	for range 3 {
		s.run(t, t.Context())
	}
	if len(seen) != 3 || !seen[0].Strict || seen[2].Big != 9007199254740993 || decodings != 0 || decoded != 1 {
		t.Errorf("seen %d, decodings %d, first %d", len(seen), decodings, decoded)
	}
}

var decodings int

type counting struct{ n *int }

func (c *counting) UnmarshalJSON([]byte) error {
	decodings++
	n := decodings
	c.n = &n
	return nil
}

// sample has a field of each kind that a schema is inferred for.
type sample struct {
	Text    string             `json:"text"`
	Small   int8               `json:"small"`
	Big     int64              `json:"big"`
	Un      uint64             `json:"un"`
	Float   float64            `json:"float"`
	Flag    *bool              `json:"flag"`
	List    []string           `json:"list"`
	Lists   *[][]int           `json:"lists,omitempty"`
	Map     map[string]float32 `json:"map"`
	Bytes   []byte             `json:"bytes"`
	Fixed   [3]uint8           `json:"fixed"`
	Nested  []base             `json:"nested"`
	Anyhow  json.Number        `json:"anyhow"`
	Omitted int                `json:"omitted,omitempty"`
}

func TestAnInferredSchemaAdmitsWhatItsTypeEncodes(t *testing.T) {
	pass := node.Of("t", 1, func(_ context.Context, in sample) (sample, error) { return in, nil })
	schemas := map[string]*value.Schema{}
	for name, port := range pass.Contract().Writes {
		s, err := value.CompileSchema(port.Schema, nil)
		if err != nil {
			t.Fatal(err)
		}
		schemas[name] = s
	}
	var want sample
	source := place(t, node.Of("t", 1, func(context.Context, struct{}) (sample, error) { return want, nil }), "", nil)
	s := place(t, pass, "", nil)
	rapid.Check(t, func(rt *rapid.T) {
		want = rapid.Make[sample]().Draw(rt, "sample")
		want.Anyhow = json.Number(rapid.SampledFrom([]string{"0", "-1", "1.50", "1e400"}).Draw(rt, "number"))
		valid := func(s string) string { return strings.ToValidUTF8(s, "?") }
		want.Text = valid(want.Text)
		for i := range want.List {
			want.List[i] = valid(want.List[i])
		}
		for i := range want.Nested {
			want.Nested[i].Shared = valid(want.Nested[i].Shared)
		}
		renamed := map[string]float32{}
		for k, v := range want.Map {
			renamed["k"+valid(k)] = v
		}
		want.Map = renamed

		first := source.run(t, context.Background())
		if f, failed := first.Failure(); failed {
			rt.Fatalf("failure %+v", f)
		}
		for name, v := range first.Update() {
			if err := schemas[name].Validate(v); err != nil {
				rt.Fatalf("%s: %s: %v", name, v, err)
			}
		}
		call := s.call
		call.Reads = first.Update()
		again, err := s.Run(context.Background(), &call)
		if err != nil {
			rt.Fatal(err)
		}
		if again.Kind() != run.ResultCompleted || !reflect.DeepEqual(first.Update(), again.Update()) {
			rt.Fatalf("first %s\nagain %s", text(first.Update()), text(again.Update()))
		}
	})
}
