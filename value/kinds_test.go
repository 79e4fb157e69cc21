package value

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// What is judged by its text alone is judged as the validator would.
func TestAVerdictByTextIsTheValidators(t *testing.T) {
	texts := rapid.OneOf(
		rapid.SampledFrom([]string{
			"null", "true", "false", "nul", "truee", "falsE", "-", "-0", "0", "00", "01", "-01", "1.0", "1e2", "1E400", "+1", " 1", "1 ",
			"123456789012345678", "1234567890123456789", "99999999999999999999", `"`, `""`, `"a"`, `"a`, `"a"b"`, `"\u0041"`, "\"\x00\"", "\"\xff\"",
			`"é"`, `"\"`, "[]", "{}", "[1]", `{"a":1}`, "", "'a'",
		}),
		rapid.Map(rapid.String(), func(s string) string { return `"` + s + `"` }),
		rapid.Map(rapid.String(), func(s string) string { b, _ := json.Marshal(s); return string(b) }),
		rapid.Map(rapid.Int64(), func(n int64) string { return fmt.Sprint(n) }),
		rapid.Map(rapid.Float64(), func(n float64) string { return fmt.Sprint(n) }),
		rapid.String(),
	)
	names := rapid.SampledFrom([]string{"null", "boolean", "string", "integer", "number", "array", "object"})
	keywords := rapid.SampledFrom([]string{
		``, `,"title":"x"`, `,"default":1`, `,"format":"date"`, `,"contentMediaType":"application/json"`, `,"minimum":3`, `,"const":1`, `,"maxLength":1`, `,"not":{}`,
	})
	var byText int
	rapid.Check(t, func(t *rapid.T) {
		list, _ := json.Marshal(rapid.SliceOfNDistinct(names, 1, 3, rapid.ID[string]).Draw(t, "types"))
		text := fmt.Sprintf(`{"type":%s%s}`, list, keywords.Draw(t, "keyword"))
		if rapid.IntRange(0, 9).Draw(t, "anything") == 0 {
			text = "true"
		}
		s, err := CompileSchema(Value(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		v := Value(texts.Draw(t, "value"))
		if s.kinds.allows(v) {
			byText++
			if misfits := s.Misfits(v); len(misfits) > 0 {
				t.Fatalf("%q fits %s by its text alone, but: %v", v, text, misfits[0])
			}
		}
	})
	if byText == 0 {
		t.Error("no value was judged by its text alone")
	}
}

func TestOnlyATypeIsJudgedByText(t *testing.T) {
	for schema, want := range map[string]kinds{
		`true`: everyKind, `{}`: everyKind, `{"title":"anything"}`: everyKind,
		`{"type":"integer"}`: kindInteger, `{"type":["string","null"],"description":"x"}`: kindString | kindNull,
		`false`: 0, `{"minimum":1}`: 0, `{"type":"string","enum":["a"]}`: 0, `{"$ref":"#/$defs/a","$defs":{"a":true}}`: 0, `{"$anchor":"a"}`: 0,
	} {
		s, err := CompileSchema(Value(schema), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.kinds != want {
			t.Errorf("%s: %b, want %b", schema, s.kinds, want)
		}
	}
}
