package std_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// argv is a config that runs this test binary as a command.
func argv(t *testing.T, rest string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(append([]string{exe}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"argv":%s%s}`, list, rest)
}

func decoded(t *testing.T, raw string) string {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(raw), &text); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return text
}

func TestExecWritesWhatTheCommandSaid(t *testing.T) {
	got := place(t, "exec", argv(t, "", "echo", "a b", "*", "$HOME"), nil, "stdout", "stderr", "exit_code").completed(t)
	want := map[string]string{"stdout": `"[\"a b\" \"*\" \"$HOME\"]"`, "stderr": `"said"`, "exit_code": "0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
}

func TestExecWritesOnlyWhatTheGraphBinds(t *testing.T) {
	got := place(t, "exec", argv(t, "", "echo"), nil, "exit_code").completed(t)
	if diff := cmp.Diff(map[string]string{"exit_code": "0"}, got); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
}

func TestExecSplicesListsIntoItsArguments(t *testing.T) {
	reads := map[string]string{"list": `["./a","./b c"]`, "none": `[]`, "mixed": `[1.50,true,{"k":[1]},["x"]]`, "n": "7", "s": `"x"`}
	config := argv(t, "", "echo", "${list}", "${none}", "${mixed}", "-n=${n}", "${n}", "${s}", "${list[0:1]}", "l=${list}")
	got := place(t, "exec", config, reads, "stdout").completed(t)
	want := `["./a" "./b c" "1.50" "true" "{\"k\":[1]}" "[\"x\"]" "-n=7" "7" "x" "./a" "l=[\"./a\",\"./b c\"]"]`
	if diff := cmp.Diff(want, decoded(t, got["stdout"])); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestExecStdin(t *testing.T) {
	tests := map[string]struct{ stdin, want string }{
		"text":     {`"a <b>\n"`, "a <b>\n"},
		"template": {`"n is ${n}"`, "n is 9007199254740993"},
		"variable": {`"${o}"`, `{"k":1.0}`},
		"object":   {`{"all":["${n}"]}`, `{"all":[9007199254740993]}`},
		"number":   {`5`, "5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := place(t, "exec", argv(t, `,"stdin":`+tt.stdin, "cat"), map[string]string{"n": "9007199254740993", "o": `{"k":1.0}`}, "stdout").completed(t)
			if diff := cmp.Diff(tt.want, decoded(t, got["stdout"])); diff != "" {
				t.Errorf("stdin (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecDoesNotMindACommandThatLeavesItsStdinUnread(t *testing.T) {
	text, err := value.Of(strings.Repeat("x", 200<<10))
	if err != nil {
		t.Fatal(err)
	}
	place(t, "exec", argv(t, `,"stdin":`+string(text), "echo"), nil, "stdout").completed(t)
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("STD_TEST_OUTER", "outer")
	t.Setenv("STD_TEST_BOTH", "outer")
	config := argv(t, `,"env":{"STD_TEST_BOTH":"inner ${n}"}`, "env", "STD_TEST_OUTER", "STD_TEST_BOTH", "BELAY_RUN", "BELAY_NODE", "BELAY_ATTEMPT", "BELAY_IDEMPOTENCY_KEY")
	got := place(t, "exec", config, map[string]string{"n": "7"}, "stdout").completed(t)
	want := "STD_TEST_OUTER=outer\nSTD_TEST_BOTH=inner 7\nBELAY_RUN=r\nBELAY_NODE=n\nBELAY_ATTEMPT=1\nBELAY_IDEMPOTENCY_KEY=r:1:n\n"
	if diff := cmp.Diff(want, decoded(t, got["stdout"])); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestExecDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := value.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := place(t, "exec", argv(t, `,"dir":"${dir}"`, "pwd"), map[string]string{"dir": string(raw)}, "stdout").completed(t)
	if got := decoded(t, got["stdout"]); got != dir {
		t.Errorf("directory %s, want %s", got, dir)
	}
}

func TestExecExitCodes(t *testing.T) {
	ok := place(t, "exec", argv(t, `,"ok_codes":[0,3]`, "exit", "3"), nil, "exit_code").completed(t)
	if ok["exit_code"] != "3" {
		t.Errorf("update %v", ok)
	}
	f := place(t, "exec", argv(t, "", "exit", "3"), nil, "exit_code").failed(t, run.ResultRetry)
	if f.Code != run.CodeError || f.Message != "the command ended with exit code 3" {
		t.Errorf("failure %+v", f)
	}
	var details struct {
		ExitCode int    `json:"exit_code"`
		Tail     string `json:"stderr_tail"`
		Bytes    int    `json:"stderr_bytes"`
	}
	if err := json.Unmarshal(f.Details, &details); err != nil {
		t.Fatal(err)
	}
	if details.ExitCode != 3 || !strings.HasSuffix(details.Tail, "the end\uFFFD") || len(details.Tail) > 4<<10+8 || details.Bytes != 12008 {
		t.Errorf("details %+v", details)
	}
	if f := place(t, "exec", argv(t, `,"ok_codes":[3]`, "echo"), nil).failed(t, run.ResultRetry); f.Message != "the command ended with exit code 0" {
		t.Errorf("failure %+v", f)
	}
}

func TestExecKeepsAnyBytesStorable(t *testing.T) {
	raw := "a\xff\xfeb\x00\xe9"
	text := decoded(t, place(t, "exec", argv(t, "", "bytes"), nil, "stdout").completed(t)["stdout"])
	if text != "a\uFFFD\uFFFDb\x00\uFFFD" || !utf8.ValidString(text) {
		t.Errorf("as text: %q", text)
	}
	exact, err := base64.StdEncoding.DecodeString(decoded(t, place(t, "exec", argv(t, `,"encoding":"base64"`, "bytes"), nil, "stdout").completed(t)["stdout"]))
	if err != nil || string(exact) != raw {
		t.Errorf("as base64: %q, %v", exact, err)
	}
}

func TestH26ExecOutputLimit(t *testing.T) {
	for _, stream := range []string{"stdout", "stderr"} {
		for _, size := range []int{99, 100, 101, 200 << 10} {
			s := place(t, "exec", argv(t, `,"max_output":100`, "flood", stream, fmt.Sprint(size)), nil, "stdout", "stderr")
			if size <= 100 {
				if got := decoded(t, s.completed(t)[stream]); len(got) != size {
					t.Errorf("%s of %d bytes: %d", stream, size, len(got))
				}
				continue
			}
			f := s.failed(t, run.ResultPermanent)
			if f.Code != run.CodeTooLarge || !strings.Contains(f.Message, stream) || !strings.Contains(f.Message, "the limit is 100") {
				t.Errorf("%s of %d bytes: %+v", stream, size, f)
			}
		}
	}
}

func TestExecCommandsThatCannotStart(t *testing.T) {
	tests := map[string]struct {
		config string
		reads  map[string]string
		kind   run.ResultKind
		want   string
	}{
		"no such program":   {`{"argv":["belay-no-such-program"]}`, nil, run.ResultRetry, "belay-no-such-program"},
		"no such directory": {argv(t, `,"dir":"/belay-no-such-directory"`, "echo"), nil, run.ResultRetry, "belay-no-such-directory"},
		"spliced away":      {`{"argv":["${list}"]}`, map[string]string{"list": "[]"}, run.ResultPermanent, "it names no program"},
		"empty program":     {`{"argv":["${s}"]}`, map[string]string{"s": `""`}, run.ResultPermanent, "it names no program"},
		"null argument":     {argv(t, "", "echo", "${list}"), map[string]string{"list": `["a",null]`}, run.ResultPermanent, "config/argv/2: ${list} is null"},
		"NUL":               {argv(t, "", "echo", "${s}"), map[string]string{"s": `"a\u0000b"`}, run.ResultPermanent, "holds a NUL character"},
		"null stdin":        {argv(t, `,"stdin":"${s}"`, "echo"), map[string]string{"s": `null`}, run.ResultPermanent, "config/stdin: is null"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := place(t, "exec", tt.config, tt.reads).failed(t, tt.kind)
			if !strings.Contains(f.Message, tt.want) {
				t.Errorf("failure %+v does not say %q", f, tt.want)
			}
		})
	}
}
