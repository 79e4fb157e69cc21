package value_test

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/value"
)

func TestDecodeGivesGoData(t *testing.T) {
	for _, c := range []struct {
		text string
		want any
	}{
		{"null", nil},
		{"true", true},
		{"false", false},
		{"0", int64(0)},
		{"-0", int64(0)},
		{"-7", int64(-7)},
		{"9007199254740993", int64(9007199254740993)},
		{"9223372036854775807", int64(math.MaxInt64)},
		{"-9223372036854775808", int64(math.MinInt64)},
		{"9223372036854775808", float64(1 << 63)},
		{"-9223372036854775809", float64(math.MinInt64)},
		{"1.0", 1.0},
		{"1e3", 1000.0},
		{"-0.0", math.Copysign(0, -1)},
		{"1e-999", 0.0},
		{"1.7976931348623157e308", math.MaxFloat64},
		{`""`, ""},
		{`"a\u0000\n\"é"`, "a\x00\n\"é"},
		{`[]`, []any{}},
		{`[1,[2.5,null]]`, []any{int64(1), []any{2.5, nil}}},
		{`{}`, map[string]any{}},
		{`{"$a":{"b\n":"c"},"d":[]}`, map[string]any{"$a": map[string]any{"b\n": "c"}, "d": []any{}}},
	} {
		got, err := value.Decode(value.Value(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("Decode(%s) = %#v, %v; want %#v", c.text, got, err, c.want)
		}
	}
	if got, err := value.Decode(nil); got != nil || err != nil {
		t.Errorf("the absent value: %v, %v", got, err)
	}
}

func TestANumberNoFloatHoldsIsRefusedWithItsPlace(t *testing.T) {
	for text, path := range map[string]string{
		"1e999":                       "",
		"-1e999":                      "",
		`{"a":{"b":[1,2,1e400]}}`:     "/a/b/2",
		`{"a/b":1.7976931348624e309}`: "/a~1b",
	} {
		_, err := value.Decode(value.Value(text))
		wantRefused(t, text, err, path)
	}
}

func TestOfUndoesDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, err := value.Of(anyJSON(3).Draw(t, "data"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := value.Decode(v)
		if err != nil {
			return // a number no float holds
		}
		again, err := value.Of(data)
		if err != nil {
			t.Fatal(err)
		}
		back, err := value.Decode(again)
		if err != nil || !reflect.DeepEqual(sameNumbers(back), sameNumbers(data)) {
			t.Fatalf("%#v became %#v (%v)", data, back, err)
		}
	})
}

// sameNumbers makes 1.0, which Go writes as 1, equal to the integer it reads back as.
func sameNumbers(data any) any {
	switch data := data.(type) {
	case int64:
		return float64(data)
	case []any:
		for i := range data {
			data[i] = sameNumbers(data[i])
		}
	case map[string]any:
		for name := range data {
			data[name] = sameNumbers(data[name])
		}
	}
	return data
}
