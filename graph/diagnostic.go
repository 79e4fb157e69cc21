package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity of a diagnostic.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Diagnostic is one problem of a graph document.
type Diagnostic struct {
	Code     string   `json:"code"` // stable, snake_case; Rules lists them
	Severity Severity `json:"severity"`
	Path     string   `json:"path"`    // JSON Pointer into the document
	Message  string   `json:"message"` // a sentence that says what to do
}

// String is the diagnostic on one line.
func (d Diagnostic) String() string { return d.line("the document") }

// line is the diagnostic on one line, with a name for what has no path.
func (d Diagnostic) line(whole string) string {
	path := d.Path
	if path == "" {
		path = whole
	}
	return fmt.Sprintf("%s: %s: %s (%s)", path, d.Severity, d.Message, d.Code)
}

// Diagnostics is every problem found, errors first, then by path. It is an error
// when it holds one of error severity.
type Diagnostics []Diagnostic

func (d Diagnostics) Error() string {
	return "belay: the graph document has " + d.summary("the document")
}

// summary says how many errors there are, and which.
func (d Diagnostics) summary(whole string) string {
	errs := d.Errors()
	lines := make([]string, 0, len(errs)+1)
	switch len(errs) {
	case 0:
		return fmt.Sprintf("no errors and %d warnings", len(d))
	case 1:
		return "an error: " + errs[0].line(whole)
	}
	lines = append(lines, fmt.Sprintf("%d errors:", len(errs)))
	for _, e := range errs {
		lines = append(lines, "  "+e.line(whole))
	}
	return strings.Join(lines, "\n")
}

// Errors lists the diagnostics that stop publication.
func (d Diagnostics) Errors() Diagnostics { return d.of(SeverityError) }

// Warnings lists the diagnostics that do not stop publication.
func (d Diagnostics) Warnings() Diagnostics { return d.of(SeverityWarning) }

func (d Diagnostics) of(severity Severity) Diagnostics {
	var out Diagnostics
	for _, one := range d {
		if one.Severity == severity {
			out = append(out, one)
		}
	}
	return out
}

// reporter collects diagnostics; the severity of a code stands in the catalogue.
type reporter struct {
	list             Diagnostics
	errors, warnings int // that were reported, listed or not
}

// maxDiagnostics bounds what one document can make a person read: so many errors, and so many
// warnings.
const maxDiagnostics = 1000

func (r *reporter) add(d Diagnostic) {
	d.Severity = severityOf(d.Code)
	count := &r.errors
	if d.Severity == SeverityWarning {
		count = &r.warnings
	}
	if *count++; *count > maxDiagnostics {
		if *count > maxDiagnostics+1 {
			return
		}
		// Warnings, however many, do not stop publication.
		d.Code, d.Path, d.Message = codeTooMany, "", "There are more problems than are listed: correct these first."
		if d.Severity == SeverityWarning {
			d.Code, d.Message = codeTooManyWarnings, "There are more warnings than are listed: look at these first."
		}
	}
	// A document made in Go may hold names that no text could.
	d.Path, d.Message = strings.ToValidUTF8(d.Path, "\uFFFD"), strings.ToValidUTF8(d.Message, "\uFFFD")
	r.list = append(r.list, d)
}

func (r *reporter) report(code, path, format string, args ...any) {
	r.add(Diagnostic{Code: code, Path: path, Message: fmt.Sprintf(format, args...)})
}

// failed reports whether an error is among what was collected.
func (r *reporter) failed() bool {
	return slices.ContainsFunc(r.list, func(d Diagnostic) bool { return d.Severity == SeverityError })
}

// sorted is everything collected: errors first, then by path, code and message, each once.
func (r *reporter) sorted() Diagnostics {
	slices.SortFunc(r.list, func(a, b Diagnostic) int {
		if a.Severity != b.Severity {
			if a.Severity == SeverityError {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(r.list)
}
