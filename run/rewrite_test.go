package run

import (
	"flag"

	// The transcripts' flag -rewrite is also that of golden files and pages.
	_ "github.com/cockroachdb/datadriven"
)

func rewrite() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}
