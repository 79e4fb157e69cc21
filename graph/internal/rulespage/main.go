// Command rulespage writes the catalogue of diagnostics as a page of documentation.
package main

import (
	"fmt"
	"os"

	"github.com/belay-run/belay/graph"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rulespage FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(graph.RulesMarkdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
