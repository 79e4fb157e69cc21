package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test . -run ^TestThePageOfCommandsIsCurrent$ -write

var write = flag.Bool("write", false, "write docs/commands.md")

func TestThePageOfCommandsIsCurrent(t *testing.T) {
	const path = "../../docs/commands.md"
	want := page(newRoot(&terminal{}))
	if *write {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the commands say: run go generate ./cmd/belay", path)
	}
}

func TestEveryCommandDeclaresItsExitCodes(t *testing.T) {
	walk(newRoot(&terminal{}), func(cmd *cobra.Command) {
		if cmd.Annotations[exitAnnotation] == "" {
			t.Errorf("%s does not", cmd.CommandPath())
		}
	})
}

func TestThePackageCommentTellsTheExitCodes(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	for code, meaning := range exitMeanings {
		if line := fmt.Sprintf("//\t%d  %s\n", code, meaning); !strings.Contains(string(source), line) {
			t.Errorf("main.go lacks %q", line)
		}
	}
}

// walk visits a command and those below it.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walk(c, visit)
	}
}

// page writes the commands as a page of documentation.
func page(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# Commands\n\nThis page is generated from the commands of package `cmd/belay`.\n")
	walk(root, func(cmd *cobra.Command) {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
		if cmd.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", cmd.Long)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() {
			fmt.Fprintf(&b, "\n    %s\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n%s\n", block(cmd.Example))
		}
		// Those of parents too: a flag is listed wherever it counts.
		flags := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		flags.AddFlagSet(cmd.LocalFlags())
		flags.AddFlagSet(cmd.InheritedFlags())
		if flags.HasFlags() {
			fmt.Fprintf(&b, "\nFlags:\n\n%s\n", block(flags.FlagUsages()))
		}
		if cmd.HasSubCommands() {
			fmt.Fprintf(&b, "\nCommands:\n\n")
			for _, c := range cmd.Commands() {
				fmt.Fprintf(&b, "* [%s](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
			}
			return
		}
		fmt.Fprintf(&b, "\nExit codes:\n\n%s\n", block(cmd.Annotations[exitAnnotation]))
	})
	return b.Bytes()
}

// block is text as it stands.
func block(text string) string { return "```\n" + strings.TrimRight(text, "\n") + "\n```" }
