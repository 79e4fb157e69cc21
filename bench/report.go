package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reportFormat is the version of the JSON form.
const reportFormat = 1

// report is what one run of the bench found. It is also what a release stores.
type report struct {
	Format   int               `json:"format"`
	When     time.Time         `json:"when"`
	Quick    bool              `json:"quick"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []rowResult       `json:"rows"`
}

// machine says where it was measured.
type machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	// PostgreSQL is the server's version; empty when no row needed it.
	PostgreSQL string `json:"postgresql,omitempty"`
	// GOGC is that of the process which all contestants run in.
	GOGC int `json:"gogc,omitempty"`
	// HashMS is how many milliseconds one core takes to hash 1 MB with SHA-256.
	HashMS float64 `json:"hash_ms"`
	// Load is the system's load average when the run began; other work makes figures worthless.
	Load float64 `json:"load"`
}

type rowResult struct {
	ID       string          `json:"id"`
	Work     string          `json:"work"`
	Contests []contestResult `json:"contests"`
	// Note: the row misses a target, and a note says why.
	Note bool `json:"note"`
}

type contestResult struct {
	Name        string             `json:"name,omitempty"`
	Contestants []contestantResult `json:"contestants"`
	Targets     []targetResult     `json:"targets"`
}

type contestantResult struct {
	Name     string `json:"name"`
	Settings string `json:"settings"`
	// Wrong says what was not done as it should be; Failed, why it could not be measured. Either
	// leaves no figures.
	Wrong   string             `json:"wrong,omitempty"`
	Failed  string             `json:"failed,omitempty"`
	Figures map[string]summary `json:"figures"`
}

type targetResult struct {
	Metric  string  `json:"metric"`
	Against string  `json:"against,omitempty"`
	Least   float64 `json:"least,omitempty"`
	Most    float64 `json:"most,omitempty"`
	Value   summary `json:"value"`
	Met     bool    `json:"met"`
}

// summary is a median over the rounds, with the least and the greatest.
type summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (r *rowResult) met() bool {
	for _, c := range r.Contests {
		for _, t := range c.Targets {
			if !t.Met {
				return false
			}
		}
		for _, k := range c.Contestants {
			if k.Wrong != "" || k.Failed != "" {
				return false
			}
		}
	}
	return true
}

// wrong reports whether belay itself did not do the work, which no note excuses.
func (r *rowResult) wrong() bool {
	return slices.ContainsFunc(r.Contests, func(c contestResult) bool {
		return c.Contestants[0].Wrong != "" || c.Contestants[0].Failed != ""
	})
}

// failures are the rows that end the bench with an error: belay's work was wrong, or a target was
// missed without a note.
func (r *report) failures() []string {
	var failed []string
	for _, row := range r.Rows {
		switch {
		case row.wrong():
			failed = append(failed, row.ID+": belay's own work was wrong or failed")
		case !row.met() && !row.Note:
			failed = append(failed, row.ID+": a target is missed, and there is no note of it")
		}
	}
	return failed
}

// noted looks whether there is a note about a row.
func noted(dir, id string) bool {
	_, err := os.Stat(filepath.Join(dir, id+".md"))
	return err == nil
}

// thisMachine describes where the bench runs.
func thisMachine() machine {
	m := machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), HashMS: calibrate()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if first, _, ok := strings.Cut(string(text), " "); ok {
			m.Load, _ = strconv.ParseFloat(first, 64)
		}
	}
	return m
}

// compared are the modules whose versions belong to the figures.
var compared = []string{
	"github.com/riverqueue/river", "github.com/dbos-inc/dbos-transact-golang", "github.com/cschleiden/go-workflows",
	"github.com/jackc/pgx/v5", "modernc.org/sqlite",
}

// versions are those that this binary was built with.
func versions() map[string]string {
	found := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, dep := range info.Deps {
		if slices.Contains(compared, dep.Path) {
			found[dep.Path] = dep.Version
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			found["belay"] = s.Value
		}
		if s.Key == "vcs.modified" && s.Value == "true" {
			found["belay, changed"] = "yes"
		}
	}
	return found
}

func readReport(path string) (*report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseReport(raw)
}

// parseReport reads a report, and refuses what the tables and pictures could not show.
func parseReport(raw []byte) (*report, error) {
	var r report
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, err
	}
	return &r, r.valid()
}

func (r *report) valid() error {
	switch {
	case r.Format != reportFormat:
		return fmt.Errorf("the report is of format %d, this program reads %d", r.Format, reportFormat)
	case r.When.IsZero() || r.Rounds < 1 || r.Machine.HashMS <= 0 || r.Machine.Cores < 1:
		return fmt.Errorf("the report does not say when or where it was measured")
	}
	for _, row := range r.Rows {
		if row.ID == "" || row.Work == "" || len(row.Contests) == 0 {
			return fmt.Errorf("row %q says nothing", row.ID)
		}
		for _, c := range row.Contests {
			if len(c.Contestants) == 0 || len(c.Targets) == 0 {
				return fmt.Errorf("row %s has a contest without contestants or targets", row.ID)
			}
			for _, k := range c.Contestants {
				if unsound := k.Wrong != "" || k.Failed != ""; unsound != (len(k.Figures) == 0) {
					return fmt.Errorf("row %s: %s has figures exactly when its work was right", row.ID, k.Name)
				}
				for metric, s := range k.Figures {
					if !s.ordered() {
						return fmt.Errorf("row %s: %s of %s is out of order", row.ID, metric, k.Name)
					}
				}
			}
			for _, t := range c.Targets {
				if !t.Value.ordered() || t.Least == 0 && t.Most == 0 {
					return fmt.Errorf("row %s has a target without a bound, or a value out of order", row.ID)
				}
			}
		}
	}
	return nil
}

func (s summary) ordered() bool {
	return s.Min <= s.Median && s.Median <= s.Max && !math.IsNaN(s.Median) && !math.IsInf(s.Max, 0)
}

func (r *report) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// number prints a figure with three digits that mean something.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		digits := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func (s summary) String() string {
	least, greatest := number(s.Min), number(s.Max)
	if least == greatest {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), least, greatest)
}

// bound says what was to be reached.
func (t *targetResult) bound() string {
	var bounds []string
	unit := ""
	if t.Against != "" {
		unit = " x"
	}
	if t.Least > 0 {
		bounds = append(bounds, ">= "+number(t.Least)+unit)
	}
	if t.Most > 0 {
		bounds = append(bounds, "<= "+number(t.Most)+unit)
	}
	return strings.Join(bounds, ", ")
}

// verdict says what became of a target.
func (t *targetResult) verdict(note bool) string {
	switch {
	case t.Met:
		return "met"
	case note:
		return "missed, noted"
	}
	return "missed"
}

// value says how far it got.
func (t *targetResult) value() string {
	if t.Value == (summary{}) {
		return "none"
	}
	return t.Value.String()
}

func (t *targetResult) subject() string {
	if t.Against == "" {
		return t.Metric
	}
	return t.Metric + " / " + t.Against
}

// cells are those of the table in the documentation: a line per contestant and one per target.
func (r *report) cells() [][]string {
	lines := [][]string{{"row", "contest", "who or what", "median (spread)", "target", ""}}
	for _, row := range r.Rows {
		first := row.ID
		for _, c := range row.Contests {
			for _, k := range c.Contestants {
				lines = append(lines, []string{first, c.Name, k.Name, strings.Join(k.parts(), " "), "", ""})
				first = ""
			}
			for _, t := range c.Targets {
				lines = append(lines, []string{first, c.Name, t.subject(), t.value(), t.bound(), t.verdict(row.Note)})
			}
		}
	}
	return lines
}

// parts are the figures, or the one thing to be said instead.
func (k *contestantResult) parts() []string {
	switch {
	case k.Wrong != "":
		return []string{"WRONG: " + firstLine(k.Wrong)}
	case k.Failed != "":
		return []string{"FAILED: " + firstLine(k.Failed)}
	}
	var parts []string
	for _, metric := range sortedKeys(k.Figures) {
		s := k.Figures[metric]
		parts = append(parts, s.String()+" "+metric+";")
	}
	if n := len(parts); n > 0 {
		parts[n-1] = strings.TrimSuffix(parts[n-1], ";")
	}
	return parts
}

// last is what the same target's value was in another report.
func (r *report) last(id, contest string, t targetResult) string {
	for _, row := range r.Rows {
		for _, c := range row.Contests {
			for _, other := range c.Targets {
				if row.ID != id || c.Name != contest || other.Metric != t.Metric || other.Against != t.Against || other.Value.Median == 0 {
					continue
				}
				change := 100 * (t.Value.Median/other.Value.Median - 1)
				return fmt.Sprintf("%s (%+.0f %%)", number(other.Value.Median), change)
			}
		}
	}
	return ""
}

// tableWidth is how wide a line for a terminal may be.
const tableWidth = 100

// table prints a report for a terminal: the rows one below the other, what each contestant did and how it was
// configured, then how far each target is.
func (r *report) table(w io.Writer, before *report) {
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%s  %s\n", row.ID, row.Work)
		for _, c := range row.Contests {
			indent := "  "
			if c.Name != "" {
				fmt.Fprintln(w, indent+c.Name)
				indent += "  "
			}
			for _, k := range c.Contestants {
				fmt.Fprint(w, wrapped(indent+fmt.Sprintf("%-14s ", k.Name), len(indent)+15, k.parts()))
				fmt.Fprint(w, wrapped(strings.Repeat(" ", len(indent)+15), len(indent)+15, strings.Fields(k.Settings)))
			}
			for _, t := range c.Targets {
				line := fmt.Sprintf("%s> %s: %s, to be %s: %s", indent, t.subject(), t.value(), t.bound(), t.verdict(row.Note))
				if before != nil {
					if last := before.last(row.ID, c.Name, t); last != "" {
						line += "; last release " + last
					}
				}
				fmt.Fprintln(w, line)
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, wrapped("", 0, strings.Fields(r.where())))
}

// wrapped is words in lines of tableWidth at most; the first begins with head, the others are indented.
func wrapped(head string, indent int, words []string) string {
	var b strings.Builder
	line, empty := head, true
	for _, word := range words {
		if !empty && len([]rune(line))+1+len([]rune(word)) > tableWidth {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}

// where says where, when and with what was measured.
func (r *report) where() string {
	m := r.Machine
	mode := "full"
	if r.Quick {
		mode = "quick: too short for anything but a first look"
	}
	s := fmt.Sprintf("%s, %d rounds (%s), %.0f s; %s/%s, %d cores, %s ms to hash 1 MB, load %.1f at the beginning, %s",
		r.When.Format(time.DateOnly), r.Rounds, mode, r.Seconds, m.OS, m.Arch, m.Cores, number(m.HashMS), m.Load, m.Go)
	if m.GOGC > 0 {
		s += fmt.Sprintf(", GOGC %d for all", m.GOGC)
	}
	if m.PostgreSQL != "" {
		s += ", PostgreSQL " + m.PostgreSQL
	}
	for _, name := range sortedKeys(r.Versions) {
		s += ", " + name + " " + r.Versions[name]
	}
	return s
}

// lastRelease is the newest stored report of the same mode, nil when there is none.
func lastRelease(dir string, quick bool) (*report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var newest *report
	for _, path := range paths {
		r, err := readReport(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if r.Quick == quick && (newest == nil || r.When.After(newest.When)) {
			newest = r
		}
	}
	return newest, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
