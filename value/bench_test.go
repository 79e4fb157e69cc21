package value_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/value"
)

// oneKilobyte is a state value as nodes write them: records with text and numbers.
func oneKilobyte() []byte {
	var b strings.Builder
	b.WriteString(`{"recipes": [`)
	for i := range 9 {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"name": "recipe number %d", "minutes": %d, "tags": ["quick", "warm"], "price": %d.50, "vegan": true, "id": %d}`,
			i, 10*i, i, 9007199254740993+i)
	}
	b.WriteString("]}")
	return []byte(b.String())
}

func BenchmarkCanonical(b *testing.B) {
	raw := oneKilobyte()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Canonical(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	raw := oneKilobyte()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	type receipt struct {
		ID     string   `json:"id"`
		Amount int64    `json:"amount"`
		Lines  []string `json:"lines"`
	}
	in := receipt{ID: "r-1", Amount: 4200, Lines: []string{"one", "two"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Of(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	v, err := value.Canonical(oneKilobyte())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Decode(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeScalar(b *testing.B) {
	v := value.Value("42")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Decode(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	v, err := value.Canonical(oneKilobyte())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		value.Hash(v)
	}
}

func BenchmarkCompileSchema(b *testing.B) {
	schema := value.Value(`{"type":"array","items":{"$ref":"#/$defs/recipe"}}`)
	defs := map[string]value.Value{"recipe": value.Value(recipeSchema)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.CompileSchema(schema, defs); err != nil {
			b.Fatal(err)
		}
	}
}

const recipeSchema = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"minutes":{"type":"integer","minimum":0},` +
	`"tags":{"type":"array","items":{"type":"string"}},"price":{"type":"number"},"vegan":{"type":"boolean"},"id":{"type":"integer"}}}`

func BenchmarkValidate(b *testing.B) {
	schema, err := value.CompileSchema(value.Value(`{"type":"object","properties":{"recipes":{"type":"array","items":{"$ref":"#/$defs/recipe"}}}}`),
		map[string]value.Value{"recipe": value.Value(recipeSchema)})
	if err != nil {
		b.Fatal(err)
	}
	v, err := value.Canonical(oneKilobyte())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		if err := schema.Validate(v); err != nil {
			b.Fatal(err)
		}
	}
}
