package graph

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationText(t *testing.T) {
	for text, want := range map[string]string{
		"30s": "30s", "90s": "1m30s", "1h": "1h", "60m": "1h", "1h0m1s": "1h0m1s", "1h30m": "1h30m", "1500ms": "1.5s",
		"250ms": "250ms", "1us": "1us", "1µs": "1us", "0s": "0s", "0": "0s", "24h": "24h", "100h0.000001s": "100h0m0.000001s",
	} {
		d, err := ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.String(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "30", "-1s", "1ns", "1.5us", "soon", "1d", "10000000h", "1s "} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
	if _, err := json.Marshal(Duration(time.Nanosecond)); err == nil {
		t.Error("a nanosecond is written")
	}
	var d Duration
	if err := json.Unmarshal([]byte(`30`), &d); err == nil {
		t.Error("a number is a duration")
	}
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, 1<<53).Draw(t, "microseconds") * 1000)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again Duration
		if err := json.Unmarshal(text, &again); err != nil || again != d {
			t.Fatalf("%s: %v, %v", text, again, err)
		}
	})
}

func TestThousandthsText(t *testing.T) {
	for text, want := range map[string]string{"2": "2", "1.5": "1.5", "1.50": "1.5", "1.125": "1.125", "0.001": "0.001", "10": "10", "100.000": "100", "-1.5": "-1.5", "0": "0"} {
		f, err := ParseThousandths(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.String(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", ".5", "1.", "1.0625", "1e3", "+1", "a", "1.5 ", "--1", "99999999999999999999"} {
		if f, err := ParseThousandths(text); err == nil {
			t.Errorf("%q is read as %v", text, f)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := Thousandths(rapid.Int64Range(-1<<53, 1<<53).Draw(t, "thousandths"))
		var again Thousandths
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || again != f {
			t.Fatalf("%s: %v, %v", text, again, err)
		}
	})
}

func TestYAMLIsReadAsItStands(t *testing.T) {
	_, err := ParseYAML([]byte(`
# a comment
id: yes
fields:
  on:
    schema: {const: [yes, NO, On, off, y, n, 1.10, 12345678901234567890, -0, 1e3, ~, null, Null, true, False, "1", '1.10', 2026-01-01, 12:30, 0o7x, 1_0x, "<<", @at]}
    default: &shared
      a: |
        two
        lines
      b: >-
        one
        line
      c: "\u00e9\0"
      ~: null key
      1: number key
      true: boolean key
  off: {schema: !!str text, default: *shared}
nodes: {}
edges: {}
`))
	if err == nil || !strings.Contains(err.Error(), "found character that cannot start any token") {
		t.Fatal(err)
	}
	doc, err := ParseYAML([]byte(`
# a comment
id: yes
fields:
  on:
    schema: {const: [yes, NO, On, off, y, n, 1.10, 12345678901234567890, -0, 1e3, ~, null, Null, true, False, "1", '1.10', 2026-01-01, 12:30, 0o7x, 1_0x, "<<"]}
    default: &shared
      a: |
        two
        lines
      b: >-
        one
        line
      c: "\u00e9\0"
      ~: null key
      1: number key
      true: boolean key
  off: {schema: !!str text, default: *shared}
nodes: {}
edges: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	if doc.ID != "yes" {
		t.Error(doc.ID)
	}
	if got := string(doc.Fields["on"].Schema); got != `{"const":["yes","NO","On","off","y","n",1.10,12345678901234567890,-0,1e3,null,null,null,true,false,"1","1.10","2026-01-01","12:30","0o7x","1_0x","<<"]}` {
		t.Error(got)
	}
	if got := string(doc.Fields["on"].Default); got != `{"1":"number key","a":"two\nlines\n","b":"one line","c":"é\u0000","true":"boolean key","~":"null key"}` {
		t.Error(got)
	}
	if got := doc.Fields["off"]; string(got.Schema) != `"text"` || string(got.Default) != string(doc.Fields["on"].Default) {
		t.Error(got)
	}
}

func TestYAMLAliasesCannotExplode(t *testing.T) {
	var b strings.Builder
	b.WriteString("id: g\nnodes:\n  a0: &a0 {use: [x, x, x, x, x, x, x, x, x, x]}\n")
	for i := 1; i < 12; i++ {
		prev := strings.Repeat("*a"+string(rune('a'+i-2))+", ", 9)
		if i == 1 {
			prev = strings.Repeat("*a0, ", 9)
		}
		b.WriteString("  a" + string(rune('a'+i-1)) + ": &a" + string(rune('a'+i-1)) + " [" + prev + "1]\n")
	}
	_, err := ParseYAML([]byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "use fewer aliases") {
		t.Fatal(err)
	}
}
