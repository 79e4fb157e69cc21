package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is a row of two whose figures are given, a round each.
func fake(own, other []float64, targets ...target) contest {
	play := func(values []float64) func(context.Context, *env) (figures, error) {
		round := 0
		return func(context.Context, *env) (figures, error) {
			v := values[round]
			round++
			return figures{"runs/s": v}, nil
		}
	}
	return contest{
		contestants: []contestant{{name: "belay", run: play(own)}, {name: "peer", run: play(other)}},
		targets:     targets,
	}
}

func testEnv() *env { return &env{rounds: 3, server: &server{}} }

func TestRatiosAreTakenWithinARoundAndTheirMedianDecides(t *testing.T) {
	for _, test := range []struct {
		name       string
		own, other []float64
		target     target
		want       summary
		met        bool
	}{
		{"a slow round slows both", []float64{200, 20, 220}, []float64{100, 10, 100}, target{metric: "runs/s", against: "peer", least: 2}, summary{2, 2, 2.2}, true},
		{"one good round is not enough", []float64{100, 500, 100}, []float64{100, 100, 100}, target{metric: "runs/s", against: "peer", least: 1.2}, summary{1, 1, 5}, false},
		{"less may be better", []float64{1, 2, 3}, []float64{1, 1, 1}, target{metric: "runs/s", against: "peer", most: 2}, summary{2, 1, 3}, true},
		{"a bound of its own", []float64{1, 2, 3}, []float64{9, 9, 9}, target{metric: "runs/s", least: 2.5}, summary{2, 1, 3}, false},
		{"a peer that is not there", []float64{1, 2, 3}, []float64{9, 9, 9}, target{metric: "runs/s", against: "nobody", least: 0.1}, summary{}, false},
		{"a metric that is not there", []float64{1, 2, 3}, []float64{9, 9, 9}, target{metric: "p50 ms", against: "peer", most: 100}, summary{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fake(test.own, test.other, test.target)
			got := c.measure(t.Context(), testEnv()).Targets[0]
			if got.Value != test.want || got.Met != test.met {
				t.Errorf("%+v met %v, want %+v met %v", got.Value, got.Met, test.want, test.met)
			}
		})
	}
}

func TestContestantsTakeTurnsToBegin(t *testing.T) {
	var order []string
	note := func(name string) contestant {
		return contestant{name: name, run: func(context.Context, *env) (figures, error) {
			order = append(order, name)
			return figures{"runs/s": 1}, nil
		}}
	}
	c := contest{contestants: []contestant{note("a"), note("b")}}
	c.measure(t.Context(), testEnv())
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("ran %v, want %v", order, want)
	}
}

func TestWrongWorkHasNoFiguresAndMissesItsTargets(t *testing.T) {
	for name, run := range map[string]func(context.Context, *env) (figures, error){
		"wrong":    func(context.Context, *env) (figures, error) { return figures{"runs/s": 1e9}, wrong("one was lost") },
		"failed":   func(context.Context, *env) (figures, error) { return nil, errors.New("no server") },
		"panicked": func(context.Context, *env) (figures, error) { panic("oh") },
	} {
		t.Run(name, func(t *testing.T) {
			c := fake([]float64{1, 1, 1}, []float64{1, 1, 1}, target{metric: "runs/s", least: 1})
			c.contestants[0].run = run
			result := rowResult{ID: "P1", Work: "w", Note: true, Contests: []contestResult{c.measure(t.Context(), testEnv())}}
			belay := result.Contests[0].Contestants[0]
			if len(belay.Figures) != 0 || result.Contests[0].Targets[0].Met {
				t.Errorf("%+v", result)
			}
			var out bytes.Buffer
			r := report{Rows: []rowResult{result}}
			r.table(&out, nil)
			if text := out.String(); strings.Contains(text, "1,000,000,000") || !strings.Contains(text, "WRONG") && !strings.Contains(text, "FAILED") {
				t.Errorf("printed\n%s", text)
			}
			if got := r.failures(); len(got) != 1 {
				t.Errorf("a note excused it: %q", got)
			}
		})
	}
}

func TestAMissedTargetNeedsANote(t *testing.T) {
	for _, test := range []struct {
		name      string
		met, note bool
		failures  int
	}{
		{"met", true, false, 0},
		{"missed", false, false, 1},
		{"missed and noted", false, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			stored := sample()
			stored.Rows[0].Contests[0].Targets[0].Met = test.met
			path := filepath.Join(dir, "r.json")
			if err := stored.write(path); err != nil {
				t.Fatal(err)
			}
			if test.note {
				if err := os.WriteFile(filepath.Join(dir, "P1.md"), []byte("why\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := program(t.Context(), []string{"-from", path, "-notes", dir, "-results", t.TempDir()}, io.Discard, io.Discard); got != test.failures {
				t.Errorf("exit %d, want %d", got, test.failures)
			}
		})
	}
}

// sample is a report as a run makes it.
func sample() *report {
	c := fake([]float64{200, 240, 220}, []float64{100, 100, 100}, target{metric: "runs/s", against: "peer", least: 1.2})
	return &report{
		Format: reportFormat, When: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Rounds: 3, Seconds: 9,
		Machine:  machine{OS: "linux", Arch: "amd64", Cores: 2, Go: "go1.26", HashMS: 0.5},
		Versions: map[string]string{"peer": "v1.2.3"},
		Rows:     []rowResult{{ID: "P1", Work: "work", Contests: []contestResult{c.measure(context.Background(), testEnv())}}},
	}
}

func TestTheJSONSaysWhatTheReportSays(t *testing.T) {
	r := sample()
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	back, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if first, _ := json.Marshal(r); !bytes.Equal(first, again) {
		t.Errorf("wrote %s\nread %s", first, again)
	}
	if got := back.Rows[0].Contests[0].Targets[0].Value; got != (summary{2.2, 2, 2.4}) {
		t.Errorf("%+v", got)
	}
}

func TestAReportThatCannotBeShownIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*report){
		"another format":         func(r *report) { r.Format++ },
		"no calibration":         func(r *report) { r.Machine.HashMS = 0 },
		"no rounds":              func(r *report) { r.Rounds = 0 },
		"a row without contests": func(r *report) { r.Rows[0].Contests = nil },
		"figures of wrong work":  func(r *report) { r.Rows[0].Contests[0].Contestants[0].Wrong = "lost" },
		"no figures":             func(r *report) { r.Rows[0].Contests[0].Contestants[0].Figures = nil },
		"a spread out of order":  func(r *report) { r.Rows[0].Contests[0].Targets[0].Value.Min = 1e9 },
		"a target without bound": func(r *report) { r.Rows[0].Contests[0].Targets[0].Least = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := sample()
			spoil(r)
			raw, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parseReport(raw); err == nil {
				t.Error("it was read")
			}
		})
	}
	if _, err := parseReport([]byte(`{"format": 1, "rowz": []}`)); err == nil {
		t.Error("an unknown field was read")
	}
}

// TestStoredResultsAreReports: what a release stored can be compared with.
func TestStoredResultsAreReports(t *testing.T) {
	paths, err := filepath.Glob("results/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, err := readReport(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTheNewestReleaseOfTheSameModeIsComparedWith(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(*report){
		"old":   func(r *report) { r.When = r.When.Add(-time.Hour) },
		"new":   func(r *report) { r.Rows[0].Contests[0].Targets[0].Value = summary{1.1, 1.1, 1.1} },
		"quick": func(r *report) { r.Quick, r.When = true, r.When.Add(time.Hour) },
	} {
		r := sample()
		change(r)
		if err := r.write(filepath.Join(dir, name+".json")); err != nil {
			t.Fatal(err)
		}
	}
	before, err := lastRelease(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	sample().table(&out, before)
	if !strings.Contains(out.String(), "1.10 (+100 %)") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestATerminalSeesSettingsAndNoLineThatIsWide(t *testing.T) {
	r := sample()
	peer := &r.Rows[0].Contests[0].Contestants[1]
	peer.Settings = strings.Repeat("as its own benchmark says, ", 20)
	for i := range 20 {
		peer.Figures[strings.Repeat("x", i+1)+" µs"] = summary{1, 1, 2}
	}
	var out bytes.Buffer
	r.table(&out, nil)
	if !strings.Contains(out.String(), "as its own benchmark says,") {
		t.Errorf("the settings are not in\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > tableWidth {
			t.Errorf("%d wide: %s", n, line)
		}
	}
}

func TestThePictureIsAnImageWithABarForEachTarget(t *testing.T) {
	r := sample()
	r.Rows[0].Work = "a < b & c"
	r.Rows[0].Contests[0].Name = "x < y"
	picture := r.picture()
	bars := 0
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 2 { // the background is one
		t.Errorf("%d rectangles\n%s", bars, picture)
	}
	if !strings.Contains(picture, "2.20 (&gt;= 1.20 x)") {
		t.Errorf("the ratio is not in\n%s", picture)
	}
}

func TestTheTableGoesBetweenTheMarkers(t *testing.T) {
	got, err := replaceBetween("before\n"+tableBegins+"\nold\n"+tableEnds+"\nafter\n", "new\n")
	if want := "before\n" + tableBegins + "\nnew\n" + tableEnds + "\nafter\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := replaceBetween("nothing", "new"); err == nil {
		t.Error("a page without markers was written")
	}
	page, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceBetween(string(page), ""); err != nil {
		t.Errorf("docs/performance.md: %v", err)
	}
}

func TestWhatTheInFlightTestSaysIsRead(t *testing.T) {
	got, err := parseInFlight("x\n    inflight_unix_test.go:47: a run in flight takes 16384 bytes besides the 4100 that are stored; heartbeats take 1.4 % of a core\nok\n")
	if err != nil || got["KB/run"] != 16 || got["% of a core"] != 1.4 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseInFlight("ok\n"); err == nil {
		t.Error("nothing was read as something")
	}
}

func TestExecutedTwiceOrNeverIsWrong(t *testing.T) {
	s := newSeen(2)
	s.add(0)
	if err := s.each(1); err == nil {
		t.Error("a piece that was never executed was not missed")
	}
	s.add(1)
	if err := s.each(1); err != nil {
		t.Error(err)
	}
	s.add(1)
	var w *wrongError
	if err := s.each(1); !errors.As(err, &w) {
		t.Errorf("a piece that was executed twice: %v", err)
	}
}

func TestRowsAreChosenByName(t *testing.T) {
	o, err := parse([]string{"-only", "p1, P10", "-quick"}, io.Discard)
	if err != nil || !slices.Equal(o.only, []string{"P1", "P10"}) || !o.quick {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-only", "P13"}, {"P1"}, {"-nothing"}} {
		if got := program(t.Context(), args, io.Discard, io.Discard); got != 2 {
			t.Errorf("%q: exit %d, want 2", args, got)
		}
	}
	if got := len(rows()); got != 12 {
		t.Errorf("%d rows, want 12", got)
	}
}
