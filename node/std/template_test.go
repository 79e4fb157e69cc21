package std_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var stateOfTemplates = map[string]string{
	"n": "9007199254740993", "huge": "123456789012345678901234567890.50", "s": `"a \"b\" <c>"`, "list": `[1,"two",3.0]`,
	"o": `{"k":"v","n":9007199254740993}`, "t": "true", "nul": "null", "absent": "",
}

func TestTemplatesStandForValues(t *testing.T) {
	tests := map[string]struct{ config, want string }{
		"plain text":              {`"hello"`, `"hello"`},
		"empty":                   {`""`, `""`},
		"a lone dollar":           {`"$5 and $"`, `"$5 and $"`},
		"braces":                  {`"{a} }{"`, `"{a} }{"`},
		"no string":               {`[1.50,null,true,{"a":9007199254740993}]`, `[1.50,null,true,{"a":9007199254740993}]`},
		"a bare variable":         {`"${n}"`, "9007199254740993"},
		"with space":              {`"${ huge }"`, "123456789012345678901234567890.50"},
		"a bare object":           {`"${o}"`, `{"k":"v","n":9007199254740993}`},
		"a bare string":           {`"${s}"`, `"a \"b\" <c>"`},
		"a bare absent one":       {`"${absent}"`, "null"},
		"an expression":           {`"${n + 1}"`, "9007199254740994"},
		"a list":                  {`"${map(list, #)}"`, `[1,"two",3]`},
		"a boolean":               {`"${t && n > 1}"`, "true"},
		"a string":                {`"${o.k + '!'}"`, `"v!"`},
		"a default":               {`"${absent ?? 'none'}"`, `"none"`},
		"text and expression":     {`"n=${n}, s=${s}."`, `"n=9007199254740993, s=a \"b\" <c>."`},
		"digits in text":          {`"x${huge}"`, `"x123456789012345678901234567890.50"`},
		"JSON in text":            {`"o=${o} l=${list}"`, `"o={\"k\":\"v\",\"n\":9007199254740993} l=[1,\"two\",3.0]"`},
		"two bare ones":           {`"${t}${t}"`, `"truetrue"`},
		"braces in an expression": {`"${ {'a': {'b': n}}.a.b }"`, "9007199254740993"},
		"a brace in a string":     {`"${ '}' + \"{\" + s }"`, `"}{a \"b\" <c>"`},
		"a quote in a string":     {`"${ 'it\\'s }' }"`, `"it's }"`},
		"escaped":                 {`"$${n} is ${n}"`, `"${n} is 9007199254740993"`},
		"escaped alone":           {`"$${n}"`, `"${n}"`},
		"a dollar before escaped": {`"$$${n}"`, `"$${n}"`},
		"nested":                  {`{"a":["${n}",{"b":"x ${t}"}],"c":"$${","d":1.0}`, `{"a":[9007199254740993,{"b":"x true"}],"c":"${","d":1.0}`},
		"names are not templates": {`{"x${n}":"${n}"}`, `{"x${n}":9007199254740993}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := place(t, "set", `{"values":{"v":`+tt.config+`}}`, stateOfTemplates, "v").completed(t)
			if diff := cmp.Diff(tt.want, got["v"]); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATemplateThatFailsIsAPermanentFailureWithItsPath(t *testing.T) {
	tests := map[string]struct{ config, want string }{
		"null in text":    {`["x ${nul}"]`, "config/values/v/0: ${nul} is null, where a text is needed"},
		"absent in text":  {`["x ${absent}"]`, "config/values/v/0: ${absent} is null"},
		"runtime failure": {`{"a/b":"${list[7].x.y}"}`, "config/values/v/a~1b: belay: expression"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := place(t, "set", `{"values":{"v":`+tt.config+`}}`, stateOfTemplates, "v").failed(t, run.ResultPermanent)
			if f.Code != run.CodeError || !strings.Contains(f.Message, tt.want) {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
		})
	}
}

func TestBadConfigsAreFoundByTheirPathWhenAGraphIsChecked(t *testing.T) {
	tests := map[string]struct {
		use, config string
		want        []string // path and the beginning of what it says, sorted
	}{
		"unclosed":     {"set", `{"values":{"v":["a","${n"]}}`, []string{`/values/v/1 "${" has no closing "}"`}},
		"syntax":       {"set", `{"values":{"v":{"a":"${n +}"}}}`, []string{`/values/v/a Belay: expression "n +"`}},
		"unknown name": {"set", `{"values":{"v":"${nope}"}}`, []string{`/values/v Belay: expression "nope"`}},
		"several": {"set", `{"values":{"v":["${a}","${b} ${c}"],"w":1}}`, []string{
			`/values/v/0 Belay: expression "a"`, `/values/v/1 Belay: expression "b"`, `/values/v/1 Belay: expression "c"`, `/values/w The node does not write "w"`,
		}},
		"a clock":       {"set", `{"values":{"v":"${now()}"}}`, []string{`/values/v Belay: expression "now()"`}},
		"reserved name": {"set", `{"values":{"v":{"$a":1}}}`, []string{`/values/v/$a Names that begin with "$" are reserved`}},
		"no values":     {"set", `{"values":{}}`, []string{`/values`}},
		"no argv":       {"exec", `{}`, []string{``}},
		"empty argv":    {"exec", `{"argv":[]}`, []string{`/argv It names no program`}},
		"bad argument":  {"exec", `{"argv":["echo","${nope}"]}`, []string{`/argv/1 Belay: expression "nope"`}},
		"bad exec": {"exec", `{"argv":["a"],"dir":"${x}","env":{"A=":"","B":"${y}"},"stdin":["${z}"]}`, []string{
			`/dir Belay: expression "x"`, `/env/A= The name of an environment variable`, `/env/B Belay: expression "y"`, `/stdin/0 Belay: expression "z"`,
		}},
		"unknown member": {"exec", `{"argv":["a"],"cwd":"/"}`, []string{``}},
		"bad exit code":  {"exec", `{"argv":["a"],"ok_codes":["0"]}`, []string{`/ok_codes/0`}},
		"bad url":        {"http", `{"url":"example.com"}`, []string{`/url It is not an absolute http or https address`}},
		"ftp":            {"http", `{"url":"ftp://example.com"}`, []string{`/url It is not an absolute`}},
		"bad http":       {"http", `{"url":"${u}","method":"get","headers":{"A B":"${h}"},"body":"${b}"}`, []string{`/method`}},
		"bad templates": {"http", `{"url":"${u}","headers":{"A B":"${h}"},"body":"${b}"}`, []string{
			`/body Belay: expression "b"`, `/headers/A B Belay: expression "h"`, `/headers/A B It is not the name of an HTTP header`, `/url Belay: expression "u"`,
		}},
		"no time":        {"sleep", `{}`, []string{``}},
		"two times":      {"sleep", `{"for":"1s","until":"2030-01-02T12:00:00Z"}`, []string{``}},
		"bad duration":   {"sleep", `{"for":"1 day"}`, []string{`/for It is not a duration`}},
		"bad instant":    {"sleep", `{"until":"tomorrow"}`, []string{`/until It is not an instant`}},
		"bad sleep":      {"sleep", `{"for":"${x}s"}`, []string{`/for Belay: expression "x"`}},
		"no question":    {"ask", `{}`, []string{``}},
		"not written":    {"ask", `{"question":"?","into":"w"}`, []string{`/into The node does not write "w"`}},
		"bad schema":     {"ask", `{"question":"?","schema":{"type":"nope"}}`, []string{`/schema`}},
		"outside schema": {"ask", `{"question":"?","schema":{"$ref":"file:///etc/passwd"}}`, []string{`/schema`}},
		"lone default":   {"ask", `{"question":"?","default":1}`, []string{`/default A default answers at a deadline`}},
		"misfit default": {"ask", `{"question":"?","schema":{"type":"string"},"deadline":"1h","default":1}`, []string{`/default The default, null when there is none, does not fit`}},
		"null default":   {"ask", `{"question":"?","schema":{"type":"string"},"deadline":"1h"}`, []string{`/default The default, null when there is none, does not fit`}},
		"bad deadline":   {"ask", `{"question":"?","deadline":"soon"}`, []string{`/deadline It is neither a duration nor an instant`}},
		"bad ask": {"ask", `{"question":["${q}"],"deadline":"${d}","default":"${e}"}`, []string{
			`/deadline Belay: expression "d"`, `/default Belay: expression "e"`, `/question/0 Belay: expression "q"`,
		}},
	}
	r := std.Register(node.NewRegistry())
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := graph.Publish(document(tt.use, tt.config, []string{"n"}, []string{"v"}), r)
			var all graph.Diagnostics
			if !errors.As(err, &all) {
				t.Fatalf("error %v, want diagnostics", err)
			}
			var got []string
			for _, d := range all.Errors() {
				if d.Code == "unknown_port" {
					continue
				}
				got = append(got, strings.TrimPrefix(d.Path, "/nodes/n/config")+" "+d.Message)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("%d diagnostics:\n%s", len(got), strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("diagnostic %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
}

// TestTextWithoutExpressionsIsItself: whatever is escaped and read again is the same text.
func TestTextWithoutExpressionsIsItself(t *testing.T) {
	r := std.Register(node.NewRegistry())
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.StringOfN(rapid.RuneFrom([]rune(`$${}"'\ab`+"`\n")), 0, 20, -1).Draw(rt, "text")
		escaped := strings.ReplaceAll(want, "${", "$${")
		config, err := value.Of(map[string]any{"values": map[string]any{"v": escaped}})
		if err != nil {
			rt.Fatal(err)
		}
		c, err := graph.Publish(document("set", string(config), nil, []string{"v"}), r)
		if err != nil {
			rt.Fatalf("%q: %v", escaped, err)
		}
		p, err := r.Prepare(c, 0)
		if err != nil {
			rt.Fatal(err)
		}
		result, err := p.Run(t.Context(), &node.Call{Node: "n", Writes: []string{"v"}})
		if err != nil {
			rt.Fatal(err)
		}
		wanted, err := value.Of(want)
		if err != nil {
			rt.Fatal(err)
		}
		if got := string(result.Update()["v"]); got != string(wanted) {
			rt.Fatalf("%q gives %s, want %s", escaped, got, wanted)
		}
	})
}

// FuzzTemplates: no string makes a check or a run panic, and a checked one runs.
func FuzzTemplates(f *testing.F) {
	for _, seed := range []string{"", "${n}", "$${", "${", "${n}${n}", "a ${n + 1} b", "${ {'a':1} }", "${'}'}", "${`}`}", "$$${n}", "${n ?? 'x'}", "}${n"} {
		f.Add(seed)
	}
	r := std.Register(node.NewRegistry())
	f.Fuzz(func(t *testing.T, text string) {
		config, err := value.Of(map[string]any{"values": map[string]any{"v": text}})
		if err != nil {
			return
		}
		c, err := graph.Publish(document("set", string(config), []string{"n"}, []string{"v"}), r)
		if err != nil {
			return
		}
		p, err := r.Prepare(c, 0)
		if err != nil {
			t.Fatalf("%q was checked and is not prepared: %v", text, err)
		}
		result, err := p.Run(t.Context(), &node.Call{Node: "n", Reads: map[string]value.Value{"n": value.Value("7")}, Writes: []string{"v"}})
		if err != nil {
			t.Fatal(err)
		}
		if failure, failed := result.Failure(); failed && failure.Code != run.CodeError {
			t.Fatalf("%q: %+v", text, failure)
		}
	})
}
