package graph

import (
	"errors"
	"strings"
	"testing"

	"github.com/belay-run/belay/value"
)

func linesOf(text string) func(yield func(string) bool) { return strings.SplitSeq(text, "\n") }

var seeds = []string{
	order, `{}`, `{"id":"g","nodes":{"a":{"use":"noop"}},"edges":{"s":{"from":"$start","to":"a"}}}`,
	`{"id":"g","nodes":{"a":{"use":"set","reads":{"x":"x"},"config":{"a":[1.10,null]}}},"inputs":{"x":{"schema":true,"default":1e400}},"edges":{"s":{"from":["$start"],"to":"a","when":"state.x > 1 ** 2"}}}`,
	"id: &a g\nnodes: {x: *a, y: [*a, {<<: *a}]}\n---\n", "a: !!binary aGk=\n? {b: c}\n: d\n", `{"id":"\ud800","a":{"a":{"a":[[[[[[]]]]]]}}}`,
	`{"id":"g","fields":{"f":{"schema":{"$ref":"#/$defs/f"},"reducer":{"name":"append","max":-1}}},"$defs":{"f":{"$ref":"#/$defs/f"}}}`,
}

// refused fails unless err is one of the typed errors of reading a document.
func refused(t *testing.T, err error) {
	t.Helper()
	var list Diagnostics
	if errors.As(err, &list) {
		if len(list.Errors()) == 0 {
			t.Fatalf("an error without errors: %v", list)
		}
		for _, d := range list {
			if severityOf(d.Code) == "" || d.Message == "" {
				t.Fatalf("%+v", d)
			}
		}
		return
	}
	if !errors.Is(err, value.ErrTooLarge) {
		t.Fatalf("an untyped error: %v", err)
	}
}

// What Parse reads is written and read again as the same bytes.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := Parse(text)
		if err != nil {
			refused(t, err)
			return
		}
		roundTrip(t, doc)
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		CheckYAML(text, shop)
		doc, err := ParseYAML(text)
		if err != nil {
			refused(t, err)
			return
		}
		roundTrip(t, doc)
	})
}

func roundTrip(t *testing.T, doc *Document) {
	t.Helper()
	c := newCompiler(doc.clone())
	c.checkEncodable()
	if c.failed() {
		return
	}
	once, err := doc.canonical()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(once)
	if err != nil {
		t.Fatalf("%s: %v", once, err)
	}
	twice, err := again.canonical()
	if err != nil || !value.Equal(once, twice) {
		t.Fatalf("%s\n%s\n%v", once, twice, err)
	}
}

// A published graph loads, publishes again under the same hash, and draws.
func FuzzPublish(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := ParseYAML(text)
		if err != nil {
			return
		}
		c, err := Publish(doc, shop)
		if list := CheckYAML(text, shop); (len(list.Errors()) == 0) != (err == nil) {
			t.Fatalf("Check: %v, Publish: %v", list, err)
		}
		if err != nil {
			refused(t, err)
			return
		}
		loaded, err := Load(c.Ref(), c.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", c.Bytes(), err)
		}
		again, err := Publish(loaded.Document(), shop)
		if err != nil || again.Ref() != c.Ref() {
			t.Fatalf("%s: %v", c.Bytes(), err)
		}
		if loaded.Mermaid(nil) != c.Mermaid(nil) || loaded.Graphviz(nil) != c.Graphviz(nil) {
			t.Fatal("it draws differently")
		}
	})
}

// No expression panics, runs away, or gives another answer the second time.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{`n + 1`, `all(list, # > 0)`, `map(sortBy(items, .k), .v)`, `let y = n; y ?? 1`, `obj?.a["b"][0:1]`, `reduce(1..9, #acc + #)`, `toJSON(fromJSON(s))`, `groupBy(items, .k)`, `s matches "a+"`, `if flag {1} else {2}`, `list | take(2) | join("")`, "`x`", `1 in list`, `none`} {
		f.Add(s)
	}
	vars := variables()
	f.Fuzz(func(t *testing.T, source string) {
		e, err := CompileExpression(source, vars)
		if err == nil {
			var first value.Value
			if first, err = e.Eval(values); err == nil {
				second, err := e.Eval(values)
				if err != nil || !value.Equal(first, second) {
					t.Fatalf("%s, then %s, %v", first, second, err)
				}
				if canonical, err := value.Canonical(first); err != nil || !value.Equal(canonical, first) {
					t.Fatalf("%s is not canonical: %v", first, err)
				}
			}
		}
		if err != nil && (!errors.Is(err, ErrExpression) || strings.Contains(err.Error(), engineFailed)) {
			t.Fatal(err)
		}
	})
}
