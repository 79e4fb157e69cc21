package graph

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/expr-lang/expr/builtin"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/value"
)

func raw(text string) value.Value { return value.Value(text) }

func schema(t testing.TB, text string) *value.Schema {
	t.Helper()
	s, err := value.CompileSchema(raw(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// values is a set of variables that most tables below use.
var values = map[string]value.Value{
	"n":     raw(`7`),
	"big":   raw(`9007199254740993`),
	"x":     raw(`2.5`),
	"s":     raw(`"héllo"`),
	"flag":  raw(`true`),
	"list":  raw(`[3,1,2,3]`),
	"words": raw(`["b","a","c"]`),
	"obj":   raw(`{"a":{"b":[10,20]},"k-1":1}`),
	"items": raw(`[{"k":"b","v":1},{"k":"a","v":2},{"k":"b","v":3}]`),
	"none":  nil,
}

func variables() Variables {
	v := Variables{}
	for name := range values {
		v[name] = nil
	}
	return v
}

func TestExpressionGivesCanonicalValues(t *testing.T) {
	for source, want := range map[string]string{
		`n + 1`:                                 `8`,
		`big`:                                   `9007199254740993`,
		`big + 1`:                               `9007199254740994`,
		`n / 2`:                                 `3.5`,
		`n % 4`:                                 `3`,
		`n == 7.0`:                              `true`,
		`x > 2 and n >= 7`:                      `true`,
		`s + "!"`:                               `"héllo!"`,
		`len(s)`:                                `5`,
		`s matches "^h.*o$"`:                    `true`,
		`s contains "ll"`:                       `true`,
		`s startsWith "x"`:                      `false`,
		`none == nil`:                           `true`,
		`none ?? "default"`:                     `"default"`,
		`none?.a?.b`:                            `null`,
		`nil`:                                   `null`,
		`obj.a.b[1]`:                            `20`,
		`obj["k-1"]`:                            `1`,
		`obj.missing`:                           `null`,
		`get(obj, "a").b[-1]`:                   `20`,
		`list[1:3]`:                             `[1,2]`,
		`list == [3, 1, 2, 3]`:                  `true`,
		`2 in list`:                             `true`,
		`"a" in obj`:                            `true`,
		`"z" not in words`:                      `true`,
		`filter(list, # > 1)`:                   `[3,2,3]`,
		`map(items, .k + string(.v))`:           `["b1","a2","b3"]`,
		`all(list, # > 0)`:                      `true`,
		`any(list, # > 2)`:                      `true`,
		`none(list, # > 3)`:                     `true`,
		`one(list, # == 1)`:                     `true`,
		`find(list, # < 3)`:                     `1`,
		`findIndex(list, # == 2)`:               `2`,
		`findLast(list, # == 3)`:                `3`,
		`findLastIndex(list, # == 3)`:           `3`,
		`count(list, # == 3)`:                   `2`,
		`9223372036854775800 + n`:               `9223372036854775807`,
		`-9223372036854775801 - n`:              `-9223372036854775808`,
		`-n + 0`:                                `-7`,
		`-x * 2`:                                `-5`,
		`n - 7 == 0 and n * 0 == 0`:             `true`,
		`-4611686018427387904 * 2`:              `-9223372036854775808`,
		`sort(split("b,a", ","))`:               `["a","b"]`,
		`sortBy(split("b,a", ","), #)`:          `["a","b"]`,
		`split("a,b", ",") == ["a", "b"]`:       `true`,
		`"b" in split("a,b", ",")`:              `true`,
		`toJSON(split("a,b", ","))`:             `"[\"a\",\"b\"]"`,
		`string(split("a,b", ","))`:             `"[\"a\",\"b\"]"`,
		`string(x) + string("s") + string(nil)`: `"2.5snull"`,
		`int(n) + float(n) + float(x)`:          `16.5`,
		`list[n - 6]`:                           `1`,
		`list[x * 2 - 4]`:                       `1`,
		`get(list, x * 2 - 4)`:                  `1`,
		`get(list, 99)`:                         `null`,
		`obj == fromJSON(toJSON(obj))`:          `true`,
		`obj == {"a": 1}`:                       `false`,
		`groupBy(items, .k) == groupBy(items, .k)`: `true`,
		`sum([])`:                            `0`,
		`sum([n, x])`:                        `9.5`,
		`sum(list)`:                          `9`,
		`sum(items, .v)`:                     `6`,
		`reduce(list, #acc + #, 0)`:          `9`,
		`groupBy(items, .k)["b"][1].v`:       `3`,
		`groupBy(items, .k)`:                 `{"a":[{"k":"a","v":2}],"b":[{"k":"b","v":1},{"k":"b","v":3}]}`,
		`map(sortBy(items, .k), .v)`:         `[2,1,3]`,
		`map(sortBy(items, .k, "desc"), .v)`: `[1,3,2]`,
		`map([[2, 1], [4, 3]], sortBy(#, # + len(sortBy(list, #))))`: `[[1,2],[3,4]]`,
		`sort(list)`:                 `[1,2,3,3]`,
		`sort(words, "desc")`:        `["c","b","a"]`,
		`uniq(list)`:                 `[3,1,2]`,
		`reverse(words)`:             `["c","a","b"]`,
		`concat(list, [4])`:          `[3,1,2,3,4]`,
		`flatten([list, [[1]]])`:     `[3,1,2,3,1]`,
		`first(list) + last(list)`:   `6`,
		`take(list, 2)`:              `[3,1]`,
		`max(list) - min(list)`:      `2`,
		`mean(list)`:                 `2.25`,
		`median(list)`:               `2.5`,
		`1..4`:                       `[1,2,3,4]`,
		`map(1..n, # * 2)[6]`:        `14`,
		`split("a,b", ",")`:          `["a","b"]`,
		`join(words, "-")`:           `"b-a-c"`,
		`join(["a", "b"])`:           `"ab"`,
		`replace("a.b.c", ".", "/")`: `"a/b/c"`,
		`upper(trim("  a "))`:        `"A"`,
		`int("42") + int(2.9)`:       `44`,
		`float("1.5")`:               `1.5`,
		`string(obj)`:                `"{\"a\":{\"b\":[10,20]},\"k-1\":1}"`,
		`toJSON(list)`:               `"[3,1,2,3]"`,
		`fromJSON("{\"n\": 9007199254740993}").n`: `9007199254740993`,
		`fromBase64(toBase64(s))`:                 `"héllo"`,
		`type(list)`:                              `"array"`,
		`abs(-3) + bitand(6, 3)`:                  `5`,
		`round(2.5)`:                              `3`,
		`let y = n * 2; y + 1`:                    `15`,
		`flag ? "yes" : "no"`:                     `"yes"`,
		`if n > 5 { "many" } else { "few" }`:      `"many"`,
		`{a: n, "b": [x]}`:                        `{"a":7,"b":[2.5]}`,
		`words | map(upper(#)) | join("")`:        `"BAC"`,
		`not flag`:                                `false`,
	} {
		t.Run(source, func(t *testing.T) {
			e, err := CompileExpression(source, variables())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second evaluation uses the first one's machine
				got, err := e.Eval(values)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
		})
	}
}

func TestExpressionThatCannotBeCompiledSaysWhy(t *testing.T) {
	typed := Variables{
		"n": schema(t, `{"type":"integer"}`), "s": schema(t, `{"type":["string","null"]}`),
		"list":   schema(t, `{"type":"array","items":{"type":"string"}}`),
		"closed": schema(t, `{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}`),
		"open":   schema(t, `{"type":"object","properties":{"a":{"type":"integer"}}}`),
		"any":    nil,
	}
	for source, want := range map[string]string{
		``:                          "unexpected token EOF",
		`n +`:                       "unexpected token EOF",
		`m + 1`:                     "there is nothing called m",
		`m + k`:                     "there is nothing called m: use any, closed, list, n, open or s (column 1); there is nothing called k",
		`n + s`:                     "mismatched types int and string",
		`len(n)`:                    "invalid argument for len",
		`all(n, true)`:              "takes only array",
		`list[0] + 1`:               "mismatched types string and int",
		`map(list, # + 1)`:          "mismatched types string and int",
		`closed.b`:                  "unknown field b",
		`open.a + "x"`:              "mismatched types int and string",
		`now()`:                     "now is not available: an expression gives the same answer at any time",
		`now`:                       "now is not available",
		`date("2020-01-01")`:        "date is not available",
		`duration("1h")`:            "duration is not available",
		`timezone("UTC")`:           "timezone is not available",
		`repeat("x", 1000000)`:      "repeat is not available",
		`keys(open)`:                "keys is not available: the members of an object have no order",
		`values(open)`:              "values is not available",
		`toPairs(open)`:             "toPairs is not available",
		`fromPairs([["a", 1]])`:     "fromPairs is not available",
		`$env`:                      "there is nothing called $env",
		`$env["any"]`:               "there is nothing called $env",
		`get($env, "any")`:          "there is nothing called $env",
		`len`:                       "there is nothing called len",
		`changed("n")`:              "there is nothing called changed",
		`any.method()`:              "only the functions of the language can be called",
		`nowhere(1)`:                "there is nothing called nowhere",
		`2 ** 3`:                    "** is not available",
		`2 ^ 3`:                     "^ is not available",
		`s matches s`:               "a pattern must be a literal string",
		`s matches "("`:             "missing closing )",
		`b"bytes"`:                  "bytes are not available",
		"any == \"\x00\"" + `+ 1 +`: "unexpected token EOF",
		strings.Repeat("(", maxExpression/2) + "1" + strings.Repeat(")", maxExpression/2): "the limit is 16384",
		strings.Repeat("!", 2000) + "true":                                                "exceeds maximum allowed nodes",
	} {
		t.Run(source[:min(len(source), 40)], func(t *testing.T) {
			_, err := CompileExpression(source, typed)
			var wrong *ExpressionError
			if !errors.As(err, &wrong) || !errors.Is(err, ErrExpression) {
				t.Fatalf("got %v, want *ExpressionError", err)
			}
			if !strings.Contains(wrong.Reason, want) {
				t.Fatalf("got %q, want it to say %q", wrong.Reason, want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error has several lines: %q", err)
			}
		})
	}
}

func TestExpressionThatFailsSaysWhyWithoutData(t *testing.T) {
	for source, want := range map[string]string{
		`none > 1`:                             "there is no nil > a number (column 6): a field that was never written is nil",
		`none and true`:                        "a value is nil where true or false is needed",
		`not s`:                                "a value is a string where true or false is needed",
		`none.a`:                               "a member of nil is read",
		`s.a`:                                  "a value is a string where a number is needed",
		`list[9]`:                              "index out of range",
		`obj.a + 1`:                            "there is no an object + a number",
		`n % 0`:                                "integer divide by zero",
		`all(obj, true)`:                       "this takes a list, not an object",
		`map(s, #)`:                            "this takes a list, not a string",
		`sum(none)`:                            "this takes a list, not nil",
		`list[1.5]`:                            "an index must be a whole number",
		`int("seven")`:                         "the string is not an integer",
		`int(1e300)`:                           "outside the range of int",
		`float("NaN")`:                         "the string is not a number",
		`fromJSON("{")`:                        "not JSON that can be kept",
		`fromJSON("{\"$a\":1}")`:               "not JSON that can be kept",
		`9223372036854775807 + n`:              "outside the range of int",
		`-9223372036854775807 - n`:             "outside the range of int",
		`9223372036854775807 * n`:              "outside the range of int",
		`(-9223372036854775807 - 1) * (n - 8)`: "outside the range of int",
		`(n - 8) * (-9223372036854775807 - 1)`: "outside the range of int",
		`-(-9223372036854775807 - 1)`:          "outside the range of int",
		`abs(-9223372036854775807 - 1)`:        "outside the range of int",
		`sum([9223372036854775807, n])`:        "outside the range of int",
		`sum(list, # * 4611686018427387904)`:   "outside the range of int",
		`sum(words)`:                           "there is no a number + a string",
		`words < words`:                        "there is no a list < a list",
		`words[x]`:                             "an index must be a whole number",
		`get(words, x)`:                        "an index must be a whole number",
		`sort(n)`:                              "sort takes a list, not a number",
		`int(list)`:                            "int takes a number or a string, not a list",
		`float(flag)`:                          "float takes a number or a string, not true or false",
		`fromJSON(n)`:                          "fromJSON takes a string, not a number",
		`fromBase64(n)`:                        "fromBase64 takes a string, not a number",
		`upper(n)`:                             "a value is a number where a string is needed",
		`fromBase64("/w==")`:                   "not base64 of a UTF-8 text",
		`sort([1, "a"])`:                       "there is no",
		`sort(list, "up")`:                     `the order must be "asc" or "desc"`,
		`1.0 / 0`:                              "cannot be kept",
		`{"$a": 1}`:                            "cannot be kept",
		`s[0:2]`:                               "cannot be kept",
		`groupBy(list, #)`:                     "groups whose keys are not strings",
		`reduce([], #acc + #)`:                 "reduce of empty array",
		`n..s`:                                 "a range is between integers",
		`s contains n`:                         "contains compares strings",
		`n matches "a"`:                        "matches takes a string",
	} {
		t.Run(source, func(t *testing.T) {
			e, err := CompileExpression(source, variables())
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Eval(values)
			var wrong *ExpressionError
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v, want *ExpressionError", err)
			}
			if !strings.Contains(wrong.Reason, want) {
				t.Fatalf("got %q, want it to say %q", wrong.Reason, want)
			}
			if strings.Contains(err.Error(), "llo") || errors.Is(err, ErrBudget) {
				t.Fatalf("the error tells data, or blames the budget: %v", err)
			}
		})
	}
}

func TestEveryBuiltinIsAllowedOrDenied(t *testing.T) {
	decided := map[string]bool{}
	for _, names := range [][]string{sortedKeys(functions), predicates, sortedKeys(deniedReasons)} {
		for _, name := range names {
			if decided[name] {
				t.Errorf("%s is decided twice", name)
			}
			decided[name] = true
		}
	}
	var library []string
	for _, b := range builtin.Builtins {
		library = append(library, b.Name)
		if !decided[b.Name] {
			t.Errorf("the library has a builtin %q: allow it with what it costs, or deny it with a reason", b.Name)
		}
		if _, denied := deniedReasons[b.Name]; denied != deniedBuiltins[b.Name] {
			t.Errorf("%s: denied with a reason: %v, denied: %v", b.Name, denied, deniedBuiltins[b.Name])
		}
		if b.Predicate != slices.Contains(predicates, b.Name) {
			t.Errorf("%s: a predicate in the library: %v", b.Name, b.Predicate)
		}
	}
	for name := range decided {
		if !slices.Contains(library, name) {
			t.Errorf("%s is decided but the library does not have it", name)
		}
	}
}

func TestDeniedBuiltinsAreUnreachable(t *testing.T) {
	for name := range deniedReasons {
		for _, source := range []string{name, name + "()", name + "(a)", name + "(a, a)", "a | " + name + "()", "map(a, " + name + "(#))", "{" + name + ": " + name + "}"} {
			if _, err := CompileExpression(source, Variables{"a": nil}); err == nil {
				t.Errorf("%s compiles", source)
			}
		}
	}
}

func TestVariableMayHaveTheNameOfABuiltin(t *testing.T) {
	e, err := CompileExpression(`count(list, # == 1) + count + len(list) + now`, Variables{"count": nil, "list": nil, "now": nil})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Eval(map[string]value.Value{"count": raw(`10`), "list": raw(`[1,2]`), "now": raw(`100`)})
	if err != nil || string(got) != "113" {
		t.Fatal(string(got), err)
	}
}

// numbers is a list of n numbers.
func numbers(n int) value.Value {
	var b strings.Builder
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, i)
	}
	return raw(b.String() + "]")
}

func TestHeavyExpressionStopsAtItsBudget(t *testing.T) {
	given := map[string]value.Value{
		"long": numbers(20_000), "text": raw(`"` + strings.Repeat("ab", 100_000) + `"`), "words": raw(`["` + strings.Repeat(`aaaaaaaa","`, 20_000) + `"]`),
	}
	vars := Variables{"long": nil, "text": nil, "words": nil}
	doubling := func(first, step string, last string) string {
		b := "let a0 = " + first + ";"
		for i := 1; i < 60; i++ {
			b += fmt.Sprintf(strings.ReplaceAll(step, "X", fmt.Sprintf("a%d", i-1)), i)
		}
		return b + strings.ReplaceAll(last, "X", "a59")
	}
	for name, source := range map[string]string{
		"nested all":        `all(long, all(long, # >= 0))`,
		"nested any":        `any(long, any(long, # < 0))`,
		"nested count":      `count(long, count(long, true) > 0)`,
		"three deep":        `sum(1..1000, sum(1..1000, sum(1..1000, 1)))`,
		"reduce in reduce":  `reduce(long, #acc + reduce(long, #acc + #, 0), 0)`,
		"equality in loop":  `all(long, long == concat(long, []))`,
		"in within loop":    `all(words, # in words)`,
		"contains in loop":  `all(long, not (text contains "zz"))`,
		"match in loop":     `all(long, not (text matches "(a|b)*z"))`,
		"sort in loop":      `all(long, sort(words) != nil)`,
		"uniq":              `uniq(long)`,
		"uniq in loop":      `all(long, uniq(words) != nil)`,
		"wide range":        `1..1000000000`,
		"whole range":       `-9223372036854775807..9223372036854775807`,
		"map of ranges":     `map(1..10000, 1..10000)`,
		"doubling text":     doubling(`"aaaaaaaa"`, `let a%d = X + X;`, `len(X)`),
		"doubling list":     doubling(`[1]`, `let a%d = concat(X, X);`, `len(X)`),
		"doubling nesting":  doubling(`[1]`, `let a%d = [X, X];`, `X`),
		"doubling equality": doubling(`[1]`, `let a%d = [X, X];`, `X == X`),
		"doubling flatten":  doubling(`[1]`, `let a%d = [X, X];`, `len(flatten(X))`),
		"doubling join":     doubling(`"ab"`, `let a%d = join([X, X], X);`, `len(X)`),
		"doubling replace":  doubling(`"ab"`, `let a%d = replace(X, "a", X);`, `len(X)`),
		"doubling JSON":     doubling(`"\"\""`, `let a%d = toJSON(X);`, `len(X)`),
		"doubling objects":  doubling(`{a: 1}`, `let a%d = {a: X, b: X};`, `toJSON(X)`),
		"text in a loop":    `reduce(long, #acc + text, "")`,
		"split in a loop":   `sum(long, len(split(text, "")))`,
		"deep nesting":      `reduce(1..100000, [#acc], 0) == reduce(1..100000, [#acc], 0)`,
		"many objects":      `map(long, map(1..100, ({a: 1})))`,
	} {
		t.Run(name, func(t *testing.T) {
			e, err := CompileExpression(source, vars)
			if err != nil {
				t.Fatal(err)
			}
			// What a step costs is what matters: a part of the budget shows it too.
			if name != "nested all" {
				e.steps = stepBudget / 16
			}
			if _, err = e.Eval(given); !errors.Is(err, ErrBudget) {
				t.Fatalf("got %v, want the budget to be used up", err)
			}
		})
	}
}

func TestLargeStateFitsTheBudget(t *testing.T) {
	given := map[string]value.Value{"long": numbers(200_000)}
	for _, source := range []string{`all(long, # >= 0)`, `len(long) == 200000`, `sum(long) > 0`, `199999 in long`, `len(filter(long, # % 2 == 0)) == 100000`} {
		e, err := CompileExpression(source, Variables{"long": nil})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Eval(given); err != nil || string(got) != "true" {
			t.Errorf("%s: %s, %v", source, got, err)
		}
	}
}

func TestExpressionIsSafeForConcurrentUse(t *testing.T) {
	e, err := CompileExpression(`map(sortBy(items, .k), .v + n)`, Variables{"items": nil, "n": nil})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 200 {
				got, err := e.Eval(map[string]value.Value{"n": raw(fmt.Sprint(g)), "items": raw(`[{"k":2,"v":0},{"k":1,"v":1}]`)})
				if want := fmt.Sprintf("[%d,%d]", g+1, g); err != nil || string(got) != want {
					t.Errorf("got %s, %v, want %s", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestEvaluationLeavesItsInputAlone(t *testing.T) {
	given := map[string]value.Value{"list": raw(`[3,1,2]`)}
	e, err := CompileExpression(`sort(list) == [1,2,3] and reverse(list) == [2,1,3]`, Variables{"list": nil})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Eval(given); err != nil || string(got) != "true" || string(given["list"]) != `[3,1,2]` {
		t.Fatal(string(got), err, string(given["list"]))
	}
}

func TestIntegerArithmeticIsExactOrRefused(t *testing.T) {
	vars := Variables{"a": nil, "b": nil}
	exact := map[string]func(x, y *big.Int) *big.Int{
		"a + b":       func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) },
		"a - b":       func(x, y *big.Int) *big.Int { return new(big.Int).Sub(x, y) },
		"a * b":       func(x, y *big.Int) *big.Int { return new(big.Int).Mul(x, y) },
		"sum([a, b])": func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) },
		"-b":          func(_, y *big.Int) *big.Int { return new(big.Int).Neg(y) },
	}
	compiled := map[string]*Expression{}
	for source := range exact {
		e, err := CompileExpression(source, vars)
		if err != nil {
			t.Fatal(err)
		}
		compiled[source] = e
	}
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-4, 4), rapid.Int64Range(math.MaxInt64-4, math.MaxInt64),
			rapid.Int64Range(math.MinInt64, math.MinInt64+4), rapid.Int64Range(-1<<32, 1<<32))
		a, b := side.Draw(t, "a"), side.Draw(t, "b")
		source := rapid.SampledFrom(sortedKeys(exact)).Draw(t, "source")
		want := exact[source](big.NewInt(a), big.NewInt(b))
		got, err := compiled[source].Eval(map[string]value.Value{"a": raw(fmt.Sprint(a)), "b": raw(fmt.Sprint(b))})
		if want.IsInt64() != (err == nil) || err == nil && string(got) != want.String() {
			t.Fatalf("%s of %d and %d: %s, %v, want %v", source, a, b, got, err, want)
		}
	})
}
