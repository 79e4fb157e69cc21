package main

import (
	"fmt"
	"os"
	"strings"
)

const (
	tableBegins = "<!-- bench: begin -->"
	tableEnds   = "<!-- bench: end -->"
)

// markdown is the report as it stands in the documentation.
func (r *report) markdown() string {
	var b strings.Builder
	lines := r.cells(nil)
	for i, line := range lines {
		line = line[:6]
		for j := range line {
			line[j] = strings.ReplaceAll(line[j], "|", "\\|")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			b.WriteString("|---|---|---|---|---|---|\n")
		}
	}
	fmt.Fprintf(&b, "\n%s.\n", r.where())
	return b.String()
}

// insert puts the report between the markers of a page.
func (r *report) insert(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	replaced, err := replaceBetween(string(page), r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(replaced), 0o644)
}

func replaceBetween(page, text string) (string, error) {
	before, rest, began := strings.Cut(page, tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !began || !ended {
		return "", fmt.Errorf("there is no place between %q and %q", tableBegins, tableEnds)
	}
	return before + tableBegins + "\n" + text + tableEnds + after, nil
}
