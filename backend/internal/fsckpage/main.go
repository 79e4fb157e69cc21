// Command fsckpage writes the catalogue of audit findings as a page of documentation.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/belay-run/belay/backend"
)

const head = `# What fsck finds

<!-- Generated from the code by go generate. Do not edit. -->

` + "`belay fsck`" + ` (in Go: ` + "`Features().Audit`" + `) reads everything that is stored and compares it with the
invariants below. It changes nothing, and engines may go on meanwhile. One bad run hides no other.

| severity | meaning |
|---|---|
| database | nothing the store says can be relied on; it is not opened without a flag |
| run | this run is broken and should be left alone; the others are not concerned |
| serious | something is wrong that can be set right |
| warning | something is odd, and may be legitimate |

A finding names its check, the run (or graph, or start key) and what was found, and never holds
payloads or tokens. ` + "`--repair`" + ` does what the last column says, after looking, in the same
transaction, whether it is still so; ` + "`--dry-run`" + ` only says what it would do.

| check | severity | what is wrong | what to do | repair |
|---|---|---|---|---|
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fsckpage FILE")
		os.Exit(2)
	}
	var b strings.Builder
	b.WriteString(head)
	for _, c := range backend.AuditChecks() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.ID, c.Severity, c.Says, c.Remedy, c.Repair)
	}
	if err := os.WriteFile(os.Args[1], []byte(b.String()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
