package node

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/value"
)

type within struct {
	W int8 `json:"w"`
}

type plainFields struct {
	B  bool   `json:"b"`
	S  string `json:"s"`
	I  int64  `json:"i"`
	I8 int8
	U  uint64 `json:"u,omitempty"`
	U8 uint8  `json:"u8,omitzero"`
	O  string `json:"o,omitempty"`
	within
	Left any `json:"-"`
}

// What is decoded and encoded field by field is what the JSON library makes of it.
func TestPlainFieldsAreReadAndWrittenAsTheLibraryDoes(t *testing.T) {
	sh, err := shapeOf(reflect.TypeFor[plainFields](), true)
	if err != nil || !sh.fields.plain {
		t.Fatalf("%+v: %v", sh.fields, err)
	}
	names := append(sh.names, "other")
	texts := rapid.SampledFrom([]string{
		"true", "false", "null", "0", "-0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "9223372036854775807", "9223372036854775808",
		"-9223372036854775808", "18446744073709551615", "18446744073709551616", "1.0", "1e2", "1.5", "01", "+1", "-", "1_0", "0x1", " 1", "",
		`""`, `"a"`, `"é\""`, `"é"`, `"\u0000"`, "\"\x01\"", "\"a\xff\"", `"a"b"`, `"`, `"a`, `"a" `, `"\\"`, `"\u2028"`, "\"\u2028\x7f<\"", `"1"`, `"true"`,
		"{}", "[]", `["a"]`,
	})
	any8 := rapid.Custom(func(t *rapid.T) value.Value { return value.Value(texts.Draw(t, "text")) })
	fits := map[string]*rapid.Generator[value.Value]{
		"b": rapid.SampledFrom([]value.Value{value.Value("true"), value.Value("false")}),
		"s": rapid.SampledFrom([]value.Value{value.Value(`""`), value.Value(`"é"`)}),
		"o": rapid.SampledFrom([]value.Value{value.Value(`""`), value.Value(`"é"`)}),
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		reads := map[string]value.Value{}
		for _, name := range names {
			switch rapid.IntRange(0, 9).Draw(t, name) {
			case 0:
			case 1:
				reads[name] = any8.Draw(t, "any")
			default:
				if g := fits[name]; g != nil {
					reads[name] = g.Draw(t, "fits")
				} else {
					reads[name] = value.Value("7")
				}
			}
		}
		var direct, library plainFields
		if sh.fields.decode(reads, reflect.ValueOf(&direct).Elem()) {
			taken++
			object, err := sh.object(reads)
			if err == nil {
				err = decodeInto(object, &library)
			}
			if err != nil || direct != library {
				t.Fatalf("%q: %+v, the library makes %+v (%v) of it", reads, direct, library, err)
			}
		}

		out := plainFields{
			B: rapid.Bool().Draw(t, "b"), S: rapid.StringOf(rapid.RuneFrom([]rune("a\"\\\x00\u2028<é\U0001F600"))).Draw(t, "s"),
			I: rapid.Int64().Draw(t, "i"), I8: rapid.Int8().Draw(t, "i8"), U: rapid.Uint64().Draw(t, "u"), U8: rapid.Uint8().Draw(t, "u8"),
			O: rapid.SampledFrom([]string{"", "o", "bad \xff"}).Draw(t, "o"), within: within{rapid.Int8().Draw(t, "w")},
		}
		got, ok := sh.fields.encode(reflect.ValueOf(&out).Elem(), sh.names)
		want, err := encodeMembers(out)
		if ok != (err == nil) || ok && !cmp.Equal(want, got) {
			t.Fatalf("%+v: %s (%v), the library makes %s (%v) of it", out, got, ok, want, err)
		}
		if some, _ := sh.fields.encode(reflect.ValueOf(&out).Elem(), []string{"s"}); ok && (len(some) != 1 || some["s"] == nil) {
			t.Fatalf("%s, want s alone", some)
		}
	})
	if taken == 0 {
		t.Error("none was decoded field by field")
	}
}

func TestFieldsThatAreNotPlainAreLeftToTheLibrary(t *testing.T) {
	type named int
	for _, tt := range []struct {
		of   any
		want bool
	}{
		{struct{}{}, true},
		{struct{ A named }{}, true},
		{struct{ A *int }{}, false},
		{struct{ A float64 }{}, false},
		{struct{ A time.Duration }{}, false},
		{struct{ A []byte }{}, false},
		{struct{ A any }{}, false},
		{struct{ *Embedded }{}, false},
		{struct{ A value.Value }{}, false},
	} {
		if got := fieldsOf(reflect.TypeOf(tt.of)).plain; got != tt.want {
			t.Errorf("%T: plain %v, want %v", tt.of, got, tt.want)
		}
	}
}

// Embedded is exported, so that a pointer to it may be embedded.
type Embedded struct{ A int }
