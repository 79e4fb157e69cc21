package value_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belay-run/belay/value"
)

func mustCompile(t testing.TB, schema string, defs map[string]value.Value) *value.Schema {
	t.Helper()
	s, err := value.CompileSchema(value.Value(schema), defs)
	if err != nil {
		t.Fatalf("CompileSchema(%s): %v", schema, err)
	}
	return s
}

var sharedDefs = map[string]value.Value{
	"recipe":  value.Value(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"next":{"$ref":"#/$defs/recipe"},"unit":{"$ref":"#/$defs/a~1b"}}}`),
	"a/b":     value.Value(`{"enum":["g","l"]}`),
	"broken":  value.Value(`{"type":"strin"}`),
	"no json": value.Value(`{"type":`),
	"stray":   value.Value(`{"items":{"$ref":"#/$defs/nowhere"}}`),
	"anchor":  value.Value(`{"$anchor":"here","type":"boolean"}`),
}

func TestValidationNamesTheFirstMisfit(t *testing.T) {
	const recipe = `{"$ref":"#/$defs/recipe"}`
	for _, c := range []struct{ name, schema, value, path, reason string }{
		{"true allows all", `true`, `[1]`, "ok", ""},
		{"the empty schema allows all", `{}`, `null`, "ok", ""},
		{"false allows nothing", `false`, `1`, "", "leave it out"},
		{"a type", `{"type":["integer","null"]}`, `"x"`, "", "must be of type null or integer, not string"},
		{"1.0 is an integer", `{"type":"integer"}`, `1.0`, "ok", ""},
		{"1.5 is not", `{"type":"integer"}`, `1.5`, "", "must be of type integer"},
		{"integers beyond 2^53 are compared exactly", `{"minimum":9007199254740993}`, `9007199254740992`, "", "at least 9007199254740993"},
		{"and fit exactly", `{"const":9007199254740993}`, `9007199254740993`, "ok", ""},
		{"decimals are compared exactly", `{"multipleOf":0.01}`, `19.99`, "ok", ""},
		{"a misfit decimal", `{"multipleOf":0.01}`, `19.999`, "", "a multiple of 0.01"},
		{"exclusive bounds", `{"exclusiveMinimum":1,"exclusiveMaximum":2}`, `2`, "", "less than 2"},
		{"a huge exponent is refused, not computed", `{"type":"integer","minimum":0}`, `[1e999999999]`, "/0", "more digits"},
		{"so is a tiny one", `{"minimum":0}`, `1e-999999999`, "", "more digits"},
		{"so are endless digits", `{}`, strings.Repeat("9", 1001), "", "more digits"},
		{"1000 digits are not", `{"minimum":0}`, strings.Repeat("9", 1000), "ok", ""},
		{"a missing property", `{"required":["b","a"]}`, `{}`, "", `must have the properties "a", "b"`},
		{"an undeclared property", `{"additionalProperties":false,"properties":{"a":true}}`, `{"z":1,"a":1,"b/":2}`, "/b~1", `there is no property "b/" here: use a`},
		{"an undeclared property, where none is", `{"additionalProperties":false}`, `{"a":1}`, "/a", "no property \"a\" here: leave it out"},
		{"an undeclared property, where patterns are", `{"additionalProperties":false,"patternProperties":{"^x":true}}`, `{"a":1}`, "/a", "no property \"a\" here: leave it out, or use a name that the schema declares"},
		{"an undeclared property of a shared definition", `{"items":{"$ref":"#/$defs/closed"},"$defs":{"closed":{"properties":{"b":true,"a b":true},"additionalProperties":false}}}`, `[{"c":1}]`, "/0/c", `use "a b" or b`},
		{"an undeclared property, where many are", `{"additionalProperties":false,"properties":{` + manyProperties(25) + `}}`, `{"a":1}`, "/a", "p18, p19 or 5 more"},
		{"a long undeclared property", `{"additionalProperties":false,"properties":{"b":true}}`, `{"` + strings.Repeat("é", 5000) + `":1}`, "/" + strings.Repeat("é", 5000), `é..." here: use b`},
		{"an undeclared property before what it may stand for", `{"oneOf":[{"required":["for"]},{"required":["until"]}],"additionalProperties":false,"properties":{"for":true,"until":true}}`, `{"duration":"5s"}`, "/duration", "no property \"duration\" here: use for or until"},
		{"alternatives of what must be there", `{"anyOf":[{"required":["argv"]},{"required":["shell"]}]}`, `{}`, "", "give one of argv, shell"},
		{"alternatives of several that must be there", `{"oneOf":[{"required":["a","b"]},{"required":["c"]}]}`, `{"a":1}`, "", "give one of a with b, c"},
		{"too many alternatives of what must be there", `{"oneOf":[{"required":["for"]},{"required":["until"]}]}`, `{"for":1,"until":2}`, "", "give only one of for, until"},
		{"a property name", `{"properties":{"x":{"propertyNames":{"maxLength":1}}}}`, `{"w":{"long":1},"x":{"long":1}}`, "/w/long", "property name"},
		{"a length in characters", `{"maxLength":1}`, `"😀é"`, "", "at most 1 characters, not 2"},
		{"a pattern", `{"pattern":"^a+$"}`, `"secret"`, "", `the pattern "^a+$"`},
		{"an enumeration", `{"enum":["a",1]}`, `"secret"`, "", `one of ["a",1]`},
		{"schema text is not escaped", `{"enum":["<a>\u2028"]}`, `1`, "", "one of [\"<a>\u2028\"]"},
		{"unique elements", `{"uniqueItems":true}`, `[1,2,1.0]`, "", "0 and 2 are equal"},
		{"contains", `{"contains":{"const":1}}`, `[2]`, "", "no element"},
		{"contains too little", `{"contains":{"const":1},"minContains":2}`, `[1,2]`, "", "1 elements are what the schema says at least 2"},
		{"contains too much", `{"contains":{"const":1},"maxContains":1}`, `[1,2,1]`, "", "2 elements are what the schema says at most 1"},
		{"too few properties", `{"minProperties":2}`, `{"a":1}`, "", "at least 2 properties, not 1"},
		{"too many properties", `{"maxProperties":0}`, `{"a":1}`, "", "at most 0 properties, not 1"},
		{"too few elements", `{"minItems":1}`, `[]`, "", "at least 1 elements, not 0"},
		{"too many elements", `{"maxItems":1}`, `[1,2]`, "", "at most 1 elements, not 2"},
		{"a property that needs another", `{"dependentRequired":{"a":["c","b"]}}`, `{"a":1}`, "", `must have the properties "b", "c", since it has "a"`},
		{"a constant", `{"const":{"a":[1.50]}}`, `{"secret":1}`, "", `must be {"a":[1.50]}`},
		{"a long list of choices is not repeated", `{"enum":["` + strings.Repeat("x", 200) + `"]}`, `1`, "", "what the schema lists"},
		{"an exclusive minimum", `{"exclusiveMinimum":0.125}`, `0`, "", "greater than 0.125"},
		{"a maximum", `{"maximum":-1}`, `0`, "", "at most -1"},
		{"a property name in an array", `{"items":{"propertyNames":{"const":"a"}}}`, `[{"a":1},7,{"b":1}]`, "/2/b", "property name"},
		{"format is an annotation", `{"format":"date-time"}`, `"x"`, "ok", ""},
		{"the first in path order", `{"items":{"type":"string"}}`, `["a","b",1,"c",2,5,6,7,8,9,10]`, "/2", ""},
		{"indexes count as numbers", `{"items":{"maxLength":1}}`, `["","","aa","","","","","","","","aa"]`, "/2", ""},
		{"the outer place before the inner", `{"required":["z"],"properties":{"a":{"type":"null"}}}`, `{"a":1}`, "", `"z"`},
		{"through a shared definition", recipe, `{"name":"x","next":{"name":2}}`, "/next/name", "type string, not number"},
		{"through an escaped definition name", recipe, `{"name":"x","unit":"m"}`, "/unit", `one of ["g","l"]`},
		{"through an anchor of a definition", `{"items":{"$ref":"#here"}}`, `[true,0]`, "/1", "type boolean"},
		{"through its own definition", `{"$defs":{"n":{"type":"null"}},"items":{"$ref":"#/%24defs/n"}}`, `[1]`, "/0", "type null"},
		{"allOf explains its part", `{"allOf":[true,{"minLength":2}]}`, `"a"`, "", "at least 2 characters"},
		{"an optional value is explained by its type", `{"properties":{"r":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/recipe"}]}}}`, `{"r":{"name":1}}`, "/r/name", "type string"},
		{"alternatives of one type are not", `{"anyOf":[{"minimum":5},{"maximum":1}]}`, `3`, "", "fits no alternative"},
		{"more than one of oneOf", `{"oneOf":[{"minimum":1},{"maximum":5}]}`, `3`, "", "more than one alternative"},
		{"not", `{"not":{"type":"string"}}`, `"a"`, "", "must not be"},
		{"unevaluated properties", `{"properties":{"a":true},"unevaluatedProperties":false}`, `{"a":1,"c":1,"b":1}`, "/b", "leave it out"},
		{"a reference that never ends", `{"$ref":"#"}`, `1`, "", "without end"},
		{"text that is not JSON", `{}`, `[1,`, "", "ends too early"},
		{"no value", `{}`, ``, "", "no value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defs := sharedDefs
			if strings.Contains(c.schema, `"#here"`) { // an anchor may be in any definition
				defs = map[string]value.Value{"anchor": sharedDefs["anchor"]}
			}
			schema := mustCompile(t, c.schema, defs)
			var v value.Value
			if c.value != "" {
				v = value.Value(c.value)
			}
			err := schema.Validate(v)
			if c.path == "ok" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantRefused(t, "Validate", err, c.path)
			if err != nil && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%q does not say %q", err, c.reason)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%q repeats the value", err)
			}
		})
	}
}

func manyProperties(n int) string {
	properties := make([]string, n)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%02d":true`, i)
	}
	return strings.Join(properties, ",")
}

func TestEveryMisfitIsListed(t *testing.T) {
	s, err := value.CompileSchema(value.Value(`{"type":"object","additionalProperties":false,"required":["a"],
		"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"array","items":{"type":"integer"}}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.Misfits(value.Value(`{"b":"x","c":[1,"two",3,"four"],"y":1,"z":2}`)) {
		got = append(got, m.Path)
	}
	if want := []string{"/y", "/z", "", "/b", "/c/1", "/c/3"}; !slices.Equal(got, want) {
		t.Errorf("misfits at %q, want %q", got, want)
	}
	if misfits := s.Misfits(value.Value(`{"a":"x"}`)); len(misfits) > 0 {
		t.Errorf("a value that fits has misfits: %v", misfits)
	}
}

func TestTheFirstMisfitIsAlwaysTheSame(t *testing.T) {
	schema := mustCompile(t, `{"additionalProperties":{"propertyNames":{"pattern":"^a"},"additionalProperties":{"type":"null","minLength":3}}}`, nil)
	data := map[string]any{}
	for i := range 20 {
		data[fmt.Sprintf("p%02d", i)] = map[string]any{"b": 1, "c": "x", "a": 2}
	}
	v, err := value.Of(data)
	if err != nil {
		t.Fatal(err)
	}
	first := schema.Validate(v)
	wantRefused(t, "Validate", first, "/p00/a")
	for range 50 {
		if again := schema.Validate(v); again.Error() != first.Error() {
			t.Fatalf("%v, then %v", first, again)
		}
	}
}

func TestSchemasThatAreNoneAreRefusedWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, schema, path string }{
		{"not JSON", `{"type":`, "/type"},
		{"neither object nor boolean", `1`, ""},
		{"an unknown type", `{"properties":{"a":{"type":"strin"}}}`, "/properties/a/type"},
		{"a negative length", `{"items":{"minLength":-1}}`, "/items/minLength"},
		{"a bad pattern", `{"properties":{"a":{"pattern":"("}}}`, "/properties/a/pattern"},
		{"a bad pattern for properties", `{"patternProperties":{"(":true}}`, "/patternProperties/("},
		{"an unknown definition", `{"items":{"$ref":"#/$defs/nowhere"}}`, "/items/$ref"},
		{"an unknown place", `{"$ref":"#/properties/a"}`, "/$ref"},
		{"an unknown anchor", `{"$ref":"#nowhere"}`, ""},
		{"a badly escaped reference", `{"$ref":"#/$defs/%zz"}`, "/$ref"},
		{"a reference to the network", `{"allOf":[{"$ref":"https://example.com/s"}]}`, "/allOf/0/$ref"},
		{"a reference to a file", `{"not":{"$ref":"file:///etc/passwd"}}`, "/not/$ref"},
		{"a relative reference", `{"then":{"$dynamicRef":"other.json#/a"}}`, "/then/$dynamicRef"},
		{"a reference to a well-known schema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "/$ref"},
		{"an id, which moves references", `{"dependentSchemas":{"x":{"$id":"https://example.com"}}}`, "/dependentSchemas/x/$id"},
		{"another dialect", `{"$schema":"http://json-schema.org/draft-07/schema#"}`, "/$schema"},
		{"a dialect of its own", `{"$schema":"https://example.com/dialect"}`, "/$schema"},
		{"a broken definition", `{"$ref":"#/$defs/broken"}`, "/$defs/broken/type"},
		{"a definition that is not JSON", `{"$ref":"#/$defs/no%20json"}`, "/$defs/no json/type"},
		{"a definition with a stray reference", `{"$ref":"#/$defs/stray"}`, "/$defs/stray/items/$ref"},
		{"a definition of its own with a shared name", `{"$defs":{"recipe":true}}`, "/$defs/recipe"},
		{"a number nobody can compare", `{"maximum":1e999999999}`, "/maximum"},
		{"a name twice", `{"type":"null","type":"null"}`, "/type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defs := sharedDefs
			if c.name == "an unknown anchor" {
				defs = nil
			}
			_, err := value.CompileSchema(value.Value(c.schema), defs)
			wantRefused(t, "CompileSchema", err, c.path)
		})
	}
}

func TestReferencesAreCheckedUnderEveryKeyword(t *testing.T) {
	const away = `{"$ref":"other.json"}`
	places := map[string]string{}
	for _, keyword := range []string{
		"items", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
		"propertyNames", "not", "if", "then", "else", "contentSchema",
	} {
		places[`{"`+keyword+`":`+away+`}`] = "/" + keyword + "/$ref"
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
		places[`{"`+keyword+`":[true,`+away+`]}`] = "/" + keyword + "/1/$ref"
	}
	for _, keyword := range []string{"properties", "patternProperties", "$defs", "dependentSchemas"} {
		places[`{"`+keyword+`":{"a":`+away+`}}`] = "/" + keyword + "/a/$ref"
	}
	for schema, path := range places {
		_, err := value.CompileSchema(value.Value(schema), nil)
		wantRefused(t, schema, err, path)
	}
}

func TestKeywordsInDataAreNotReferences(t *testing.T) {
	schema := mustCompile(t, `{"default":{"$ref":"https://example.com"},"enum":[{"$ref":"x"},{"$id":"y"}],"properties":{"$id":{"const":{"$schema":"z"}}}}`, nil)
	if err := schema.Validate(value.Value(`{"$ref":"x"}`)); err != nil {
		t.Error(err)
	}
}

func TestDefinitionsThatAreNotReachedAreNotCompiled(t *testing.T) {
	mustCompile(t, `{"type":"string"}`, sharedDefs)
	if _, err := value.CompileSchema(value.Value(`{"$ref":"#/$defs/broken"}`), sharedDefs); !errors.Is(err, value.ErrInvalid) {
		t.Errorf("a broken definition that is reached: %v", err)
	}
}

func TestTypesOfASchema(t *testing.T) {
	for schema, want := range map[string][]string{
		`true`:                           {},
		`{}`:                             {},
		`{"type":"string"}`:              {"string"},
		`{"type":["string","null"]}`:     {"null", "string"},
		`{"const":null}`:                 {"null"},
		`{"enum":[1,2,"a",[],{},false]}`: {"boolean", "integer", "string", "array", "object"},
		`{"const":1.5}`:                  {"number"},
		`{"$ref":"#/$defs/recipe"}`:      {"object"},
		`{"$ref":"#"}`:                   {},
		`{"anyOf":[{"type":"null"},{"$ref":"#/$defs/recipe"}]}`: {"null", "object"},
		`{"oneOf":[{"type":"null"},{}]}`:                        {},
		`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`:              {},
	} {
		if got := mustCompile(t, schema, sharedDefs).Types(); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", schema, got, want)
		}
	}
}

func TestPropertiesOfASchema(t *testing.T) {
	const schema = `{"$ref":"#/$defs/recipe","properties":{"b":{"type":"integer"},"a":{"items":{"type":"boolean"}}},"patternProperties":{"^x-":{"type":"null"}}}`
	s := mustCompile(t, schema, sharedDefs)
	if got, want := s.Properties(), []string{"a", "b", "name", "next", "unit"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Properties = %v, want %v", got, want)
	}
	for name, want := range map[string]string{
		"b": `{"type":"integer"}`, "a": `{"items":{"type":"boolean"}}`, "x-1": `{"type":"null"}`,
		"name": `{"type":"string"}`, "next": `{"$ref":"#/$defs/recipe"}`,
	} {
		p, closed := s.Property(name)
		if closed || p == nil || string(p.Raw()) != want {
			t.Errorf("Property(%q) = %v, closed %v, want %s", name, p, closed, want)
		}
	}
	if p, closed := s.Property("other"); p != nil || closed {
		t.Errorf("an undeclared property of an open schema: %v, %v", p, closed)
	}
	next, _ := s.Property("next")
	deep, _ := next.Property("next")
	wantRefused(t, "a part validates with its definitions", deep.Validate(value.Value(`{"name":"x","unit":7}`)), "/unit")

	shut := mustCompile(t, `{"properties":{"a":true},"patternProperties":{"^x":true},"additionalProperties":false}`, nil)
	for name, declared := range map[string]bool{"a": true, "x1": true, "b": false} {
		if p, closed := shut.Property(name); !closed || (p != nil) != declared {
			t.Errorf("Property(%q) of a closed schema: %v, %v", name, p, closed)
		}
	}
	behind := mustCompile(t, `{"$ref":"#/$defs/recipe","additionalProperties":false}`, sharedDefs)
	if p, closed := behind.Property("name"); p != nil || !closed {
		t.Errorf("a closed schema refuses what only its reference declares: %v, %v", p, closed)
	}
}

func TestItemsOfASchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{"items":{"type":"string"}}`: `{"type":"string"}`,
		`{"items":true}`:              `true`,
		`{"$defs":{"l":{"items":{"const":1.0}}},"$ref":"#/$defs/l"}`: `{"const":1.0}`,
		`{"prefixItems":[true],"items":false}`:                       ``,
		`{"type":"array"}`:                                           ``,
	} {
		items := mustCompile(t, schema, nil).Items()
		switch {
		case want == "" && items != nil:
			t.Errorf("%s: %s, want none", schema, items.Raw())
		case want != "" && (items == nil || string(items.Raw()) != want):
			t.Errorf("%s: %v, want %s", schema, items, want)
		}
	}
}

func TestRawIsTheCanonicalSchemaWithoutSharedDefinitions(t *testing.T) {
	s := mustCompile(t, ` {"type": "array", "items": {"$ref": "#/$defs/recipe"}} `, sharedDefs)
	if got, want := string(s.Raw()), `{"items":{"$ref":"#/$defs/recipe"},"type":"array"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestASchemaIsSafeForConcurrentUse(t *testing.T) {
	s := mustCompile(t, `{"properties":{"r":{"$ref":"#/$defs/recipe"}},"unevaluatedProperties":false}`, sharedDefs)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := s.Validate(value.Value(`{"r":{"name":"x"}}`)); err != nil {
					t.Error(err)
				}
				if p, _ := s.Property("r"); p == nil || len(p.Raw()) == 0 {
					t.Error("no property")
				}
			}
		})
	}
	all.Wait()
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/recipe"}}}`), []byte(`{"a":{"name":1}}`))
	f.Add([]byte(`{"$ref":"#/allOf/0","allOf":[{"minimum":1e5}]}`), []byte(`[1e10]`))
	f.Add([]byte(`{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"},"uniqueItems":true}`), []byte(`[[],[1.0,1]]`))
	f.Add([]byte(`{"propertyNames":{"pattern":"^a"},"anyOf":[{"const":1},{"unevaluatedProperties":false}]}`), []byte(`{"b":1}`))
	f.Fuzz(func(t *testing.T, schema, v []byte) {
		s, err := value.CompileSchema(schema, map[string]value.Value{"recipe": sharedDefs["recipe"], "a/b": sharedDefs["a/b"]})
		var refused *value.Error
		if err != nil {
			if !errors.As(err, &refused) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if !json.Valid(s.Raw()) {
			t.Fatalf("Raw is %q", s.Raw())
		}
		s.Types()
		for _, name := range s.Properties() {
			if p, _ := s.Property(name); p == nil || !json.Valid(p.Raw()) {
				t.Fatalf("Property(%q) of %s", name, s.Raw())
			}
		}
		if items := s.Items(); items != nil && !json.Valid(items.Raw()) {
			t.Fatalf("Items of %s", s.Raw())
		}
		if first := s.Validate(v); first != nil {
			if !errors.As(first, &refused) {
				t.Fatalf("%T %v", first, first)
			}
			if again := s.Validate(v); again == nil || again.Error() != first.Error() {
				t.Fatalf("%v, then %v", first, again)
			}
		}
	})
}
