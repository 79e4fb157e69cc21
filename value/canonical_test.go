package value_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/value"
)

func TestCanonicalFormIsUnique(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"white space goes", " { \"a\" :\t[ 1 ,\n2 ] }\r\n", `{"a":[1,2]}`},
		{"keys are sorted at every depth", `{"b":{"d":1,"c":2},"a":3}`, `{"a":3,"b":{"c":2,"d":1}}`},
		{"keys are sorted by UTF-16 code units", `{"\ufb01":1,"😀":2,"é":3}`, `{"é":3,"😀":2,"ﬁ":1}`},
		{"a key that is a prefix comes first", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		{"numbers keep their digits", `[1.0,1.50,1e5,1E+5,-0,-0.0,1e999,0.1000000000000000055]`, `[1.0,1.50,1e5,1E+5,-0,-0.0,1e999,0.1000000000000000055]`},
		{"integers beyond 2^53 keep their digits", `[9007199254740993,123456789012345678901234567890]`, `[9007199254740993,123456789012345678901234567890]`},
		{"strings are escaped only where they must be", `"\u0041\/\u00e9\ud83d\ude00<>&\u2028"`, "\"A/é😀<>&\u2028\""},
		{"control characters have their short escapes", `"\u0008\u0009\u000a\u000c\u000d\u001F\u007f"`, "\"\\b\\t\\n\\f\\r\\u001f\u007f\""},
		{"NUL is legal", `{"\u0000":"a\u0000b"}`, `{"\u0000":"a\u0000b"}`},
		{"null is a value", ` null `, `null`},
		{"names may begin with a dollar", `{"$ref":"#/$defs/a"}`, `{"$ref":"#/$defs/a"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := []byte(c.raw)
			got, err := value.Canonical(raw)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if string(raw) != c.raw {
				t.Errorf("the argument was modified to %s", raw)
			}
			clear(raw)
			if string(got) != c.want {
				t.Error("the argument was retained")
			}
		})
	}
}

func TestMalformedTextIsRefusedWithItsPlace(t *testing.T) {
	for _, c := range []struct{ name, raw, path string }{
		{"nothing", "", ""},
		{"only white space", " \n", ""},
		{"a cut literal", "nul", ""},
		{"a cut array", `{"a":[1,`, "/a"},
		{"a cut string", `["ab`, "/0"},
		{"two values", "1 2", ""},
		{"a trailing comma", `{"a":[1,]}`, "/a/1"},
		{"a comment", `/* a */ 1`, ""},
		{"a single quote", `{'a':1}`, ""},
		{"a number with a leading zero", `{"a":{"b":01}}`, "/a"},
		{"a leading zero alone", "01", ""},
		{"a leading zero behind a sign", "-07", ""},
		{"a plus sign", "+1", ""},
		{"a sign alone", "-", ""},
		{"NaN", `{"a":NaN}`, "/a"},
		{"a byte order mark", "\xef\xbb\xbf1", ""},
		{"a raw control character", "[\"a\nb\"]", "/0"},
		{"an unknown escape", `["\x41"]`, "/0"},
		{"a name twice", `{"a":[{"b":1,"c":2,"b":1}]}`, "/a/0/b"},
		{"a name twice, once escaped", `{"a":1,"\u0061":1}`, "/a"},
		{"a name that needs escaping in a pointer", `{"a/b~c":[nope]}`, "/a~1b~0c/0"},
		{"invalid UTF-8 in a string", "{\"a\":[\"x\xffy\"]}", "/a/0"},
		{"invalid UTF-8 in a name", "{\"a\":{\"x\xff\":1}}", "/a"},
		{"a lone escaped surrogate", `{"a":"\ud83d"}`, "/a"},
		{"a lone encoded surrogate", "[\"\xed\xa0\x80\"]", "/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, read := range map[string]func([]byte) error{
				"Canonical": func(raw []byte) error { _, err := value.Canonical(raw); return err },
				"Parse":     func(raw []byte) error { _, err := value.Parse(raw); return err },
				"Of":        func(raw []byte) error { _, err := value.Of(json.RawMessage(raw)); return err },
				"Of within": func(raw []byte) error { _, err := value.Of([]any{json.RawMessage(raw)}); return err },
			} {
				path := c.path
				if name == "Of within" {
					path = "/0" + path
				}
				wantRefused(t, name, read([]byte(c.raw)), path)
			}
			// Decode reads token by token: its place may be the array or object around.
			var refused *value.Error
			if _, err := value.Decode([]byte(c.raw)); !errors.As(err, &refused) || !strings.HasPrefix(c.path, refused.Path) {
				t.Errorf("Decode: %v, want a place on the way to %q", err, c.path)
			}
		})
	}
}

// wantRefused checks that err is an *Error at path whose message is fit for a user.
func wantRefused(t *testing.T, what string, err error, path string) {
	t.Helper()
	var refused *value.Error
	if !errors.As(err, &refused) || !errors.Is(err, value.ErrInvalid) {
		t.Errorf("%s: got %v, want a *value.Error", what, err)
		return
	}
	if refused.Path != path {
		t.Errorf("%s: at %q, want %q (%s)", what, refused.Path, path, refused.Reason)
	}
	if refused.Reason == "" || strings.HasSuffix(refused.Reason, ".") || strings.Contains(refused.Reason, "jsontext") {
		t.Errorf("%s: the reason %q is not a clause of ours", what, refused.Reason)
	}
	if !strings.HasPrefix(err.Error(), "belay: invalid value: at ") {
		t.Errorf("%s: message %q", what, err)
	}
}

func TestReservedNamesAreRefusedAtAnyDepth(t *testing.T) {
	for _, c := range []struct{ raw, path string }{
		{`{"$a":1}`, "/$a"},
		{`{"b":[0,{"$":1}]}`, "/b/1/$"},
		{`{"b":{"\u0024ref":1}}`, "/b/$ref"},
		{`{"q\"":{"\\":{"$x":1}}}`, `/q"/\/$x`},
		{`{"z":{"$a":1},"$z":1}`, "/$z"}, // the first in canonical order
	} {
		_, err := value.Parse([]byte(c.raw))
		wantRefused(t, "Parse "+c.raw, err, c.path)
		if _, err := value.Canonical([]byte(c.raw)); err != nil {
			t.Errorf("Canonical(%s): %v", c.raw, err)
		}
	}
	for _, legal := range []string{`"$a"`, `["$a",":"]`, `{"a$":"$"}`, `{"a":"$b","c":1}`, `{"\\":"$x"}`, `{"a":"\"$b\":1"}`} {
		if _, err := value.Parse([]byte(legal)); err != nil {
			t.Errorf("Parse(%s): %v", legal, err)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":[`, depth/2) + strings.Repeat("]}", depth/2))
	}
	if _, err := value.Parse(nested(value.MaxDepth)); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, err := value.Decode(nested(value.MaxDepth)); err != nil {
		t.Errorf("decoded at the bound: %v", err)
	}
	for _, depth := range []int{value.MaxDepth + 2, 20_000, 1_000_000} {
		path := ""
		if depth == value.MaxDepth+2 {
			path = strings.Repeat("/a/0", value.MaxDepth/2)
		}
		for name, read := range map[string]func([]byte) error{
			"Canonical": func(raw []byte) error { _, err := value.Canonical(raw); return err },
			"Decode":    func(raw []byte) error { _, err := value.Decode(raw); return err },
		} {
			err := read(nested(depth))
			if path != "" {
				wantRefused(t, name, err, path)
			} else if !errors.Is(err, value.ErrInvalid) {
				t.Errorf("%s at depth %d: %v", name, depth, err)
			}
		}
	}
	brackets := []byte(`"` + strings.Repeat("[", 2*value.MaxDepth) + `"`)
	if _, err := value.Canonical(brackets); err != nil {
		t.Errorf("brackets in a string: %v", err)
	}
	wide := []byte("[" + strings.TrimSuffix(strings.Repeat("[],", 2*value.MaxDepth), ",") + "]")
	if _, err := value.Canonical(wide); err != nil {
		t.Errorf("many siblings: %v", err)
	}
}

func TestEqualityIsOfCanonicalBytes(t *testing.T) {
	v := func(raw string) value.Value {
		c, err := value.Canonical([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		name string
		a, b value.Value
		want bool
	}{
		{"key order is not information", v(`{"a":1,"b":2}`), v(`{"b":2,"a":1}`), true},
		{"1 is not 1.0", v("1"), v("1.0"), false},
		{"absent is absent", nil, nil, true},
		{"absent is not null", nil, value.Null(), false},
		{"absent is not the empty text", nil, value.Value{}, false},
	} {
		if got := value.Equal(c.a, c.b); got != c.want {
			t.Errorf("%s: Equal = %v", c.name, got)
		}
	}
}

func TestHashIsSHA256InLowerCaseHex(t *testing.T) {
	const want = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	if got := value.Hash(value.Value("{}")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLimitIsInclusive(t *testing.T) {
	limits := value.Limits{Value: 10}.WithDefaults()
	if want := (value.Limits{Document: 16 << 20, EventPayload: 1 << 20, Value: 10}); limits != want {
		t.Fatalf("got %+v, want %+v", limits, want)
	}
	for size, over := range map[int]bool{9: false, 10: false, 11: true} {
		err := value.Check("value", size, limits.Value)
		var tooLarge *value.LimitError
		if errors.As(err, &tooLarge) != over || errors.Is(err, value.ErrTooLarge) != over {
			t.Errorf("%d bytes: %v", size, err)
		}
		if over && *tooLarge != (value.LimitError{What: "value", Size: 11, Limit: 10}) {
			t.Errorf("%d bytes: %+v", size, tooLarge)
		}
	}
}

// anyJSON draws decoded JSON, with numbers as literals.
func anyJSON(depth int) *rapid.Generator[any] {
	scalar := []*rapid.Generator[any]{
		rapid.Just(any(nil)),
		rapid.Bool().AsAny(),
		rapid.String().Filter(validText).AsAny(),
		rapid.Map(rapid.Int64(), func(n int64) any { return json.Number(jsonText(n)) }),
		rapid.Map(rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }), func(f float64) any { return json.Number(jsonText(f)) }),
		rapid.Map(rapid.StringMatching(`-?[1-9][0-9]{0,40}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?`), func(s string) any { return json.Number(s) }),
	}
	if depth == 0 {
		return rapid.OneOf(scalar...)
	}
	below := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(append(scalar,
		rapid.Map(rapid.SliceOfN(below, 0, 4), func(s []any) any { return s }),
		rapid.Map(rapid.MapOfN(rapid.String().Filter(validText), below, 0, 4), func(m map[string]any) any { return m }),
	)...)
}

func validText(s string) bool { return !strings.Contains(s, "\ufffd") && !strings.HasPrefix(s, "$") }

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// unmarshal is encoding/json's reading of a text: the oracle.
func unmarshal(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func TestCanonicalKeepsTheDataAndIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := anyJSON(3).Draw(t, "data")
		raw, err := json.MarshalIndent(data, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		v, err := value.Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if again, err := value.Canonical(v); err != nil || !value.Equal(v, again) {
			t.Fatalf("canonical text %s became %s (%v)", v, again, err)
		}
		if back, err := unmarshal(v); err != nil || !reflect.DeepEqual(back, data) {
			t.Fatalf("%s holds %#v, want %#v (%v)", v, back, data, err)
		}
		if of, err := value.Of(data); err != nil || !value.Equal(of, v) {
			t.Fatalf("Of gives %s, Parse gives %s (%v)", of, v, err)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":1.0,"a":["\u0000\ud83d\ude00",-0]}`, `[1e999,{"a":{"a":1}}]`, `{"a":1,"a":2}`, "\"\xff\"", ` null `, `{"":[[]]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := slices.Clone(raw)
		v, err := value.Canonical(raw)
		if !bytes.Equal(raw, before) {
			t.Fatalf("the argument was modified: %q became %q", before, raw)
		}
		if err != nil {
			var refused *value.Error
			if !errors.As(err, &refused) || v != nil {
				t.Fatalf("%T %v, with value %q", err, err, v)
			}
			if json.Valid(raw) && !strings.Contains(refused.Reason, "twice") && !strings.Contains(refused.Reason, "UTF-8") &&
				!strings.Contains(refused.Reason, "stands for no character") && !strings.Contains(refused.Reason, "deeper") {
				t.Fatalf("%q is JSON, but refused: %v", raw, err)
			}
			return
		}
		again, err := value.Canonical(v)
		if err != nil || !value.Equal(v, again) {
			t.Fatalf("%q is not a fixed point: %q, %v", v, again, err)
		}
		want, err := unmarshal(raw)
		if err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", raw, err)
		}
		if got, err := unmarshal(v); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q holds %#v, %q holds %#v (%v)", raw, want, v, got, err)
		}
		if _, err := value.Decode(v); err != nil && !strings.Contains(err.Error(), "floating point") {
			t.Fatalf("canonical %q does not decode: %v", v, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"$a":1}`, `["$a"]`, `{"a":{"\u0024b":"$"}}`, `{"\\":"$","b":":"}`, `{"a":"\"$b\":"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, err := value.Canonical(raw)
		if err != nil {
			if _, err := value.Parse(raw); err == nil {
				t.Fatalf("Parse accepts %q, which Canonical refuses", raw)
			}
			return
		}
		data, err := unmarshal(canonical)
		if err != nil {
			t.Fatal(err)
		}
		v, err := value.Parse(raw)
		if reserved := hasReserved(data); reserved != (err != nil) {
			t.Fatalf("%q has a reserved name: %v, but Parse answers %v", raw, reserved, err)
		}
		if err != nil {
			var refused *value.Error
			if !errors.As(err, &refused) || !strings.Contains(refused.Path, "/$") {
				t.Fatalf("%q: %v", raw, err)
			}
		} else if !value.Equal(v, canonical) {
			t.Fatalf("Parse gives %q, Canonical %q", v, canonical)
		}
	})
}

func hasReserved(data any) bool {
	switch data := data.(type) {
	case map[string]any:
		for name, v := range data {
			if strings.HasPrefix(name, "$") || hasReserved(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(data, hasReserved)
	}
	return false
}
