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
	lines := r.cells()
	for i, line := range lines {
		for j := range line {
			line[j] = strings.ReplaceAll(line[j], "|", "\\|")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			b.WriteString("|---|---|---|---|---|---|\n")
		}
	}
	b.WriteString("\n")
	b.WriteString(wrapped("", 0, strings.Fields(r.where()+".")))
	b.WriteString("\nHow each was configured:\n\n")
	told := map[string]bool{}
	for _, row := range r.Rows {
		for _, c := range row.Contests {
			for _, k := range c.Contestants {
				words := strings.Fields(fmt.Sprintf("%s, %s: %s.", row.ID, k.Name, k.Settings))
				if c.Name != "" {
					words = strings.Fields(fmt.Sprintf("%s (%s), %s: %s.", row.ID, c.Name, k.Name, k.Settings))
				}
				// What two rows do with the same settings is told once.
				if said := k.Name + k.Settings; !told[said] {
					told[said] = true
					b.WriteString(wrapped("* ", 2, words))
				}
			}
		}
	}
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
