// Command belay runs graphs of built-in nodes durably from the command line, and checks and
// draws graph documents.
//
// Exit codes, of every command:
//
//	0  done
//	1  the run failed, the graph or the store has errors, or runs are there that cannot go on
//	2  usage: arguments, an unreadable graph, input that does not fit, a run that is not there
//	3  the run waits for an answer
//	4  the run is poisoned
//	5  the run was cancelled
//	6  infrastructure: the database (one that is not migrated, too), the system, an interrupted command
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	t := newTerminal(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	ctx, stop := context.WithCancel(context.Background())
	var cut context.CancelFunc
	t.cut, cut = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		// Nodes are ended with what they have started, and their run is released. That takes seconds.
		cut()
		signal.Stop(signals) // a third signal ends the process as it is
	}()
	os.Exit(execute(ctx, os.Args[1:], t))
}

// execute runs one command line and answers its exit code.
func execute(ctx context.Context, args []string, t *terminal) int {
	root := newRoot(t)
	root.SetArgs(args)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.err)
	err := root.ExecuteContext(ctx)
	if coded := (*exitError)(nil); ctx.Err() != nil && errors.Is(err, context.Canceled) && !errors.As(err, &coded) {
		err = &exitError{
			exitInfrastructure, fmt.Errorf("interrupted: %w", err),
			"if it waited for a database that another process keeps busy, see which one does, and run it again then",
		}
	}
	return t.finish(err)
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "belay",
		Short: "Run graphs durably",
		Long: `belay runs graphs of built-in nodes (ask, exec, http, set, sleep) durably: every step of a run is
one atomic commit, and a run goes on from its last checkpoint. Runs are kept in a file under the user's data
directory, unless --db or the environment variable BELAY_DB name another place.

A place is sqlite:FILE, a path, memory: or a PostgreSQL database, postgres://USER@HOST:PORT/DATABASE. There belay's
tables are in the schema belay, or in the one that a parameter names, postgres://...?belay_schema=NAME; belay
migrate makes it. A password is better kept in BELAY_DB, PGPASSWORD or ~/.pgpass than in --db, where other users
of the host may see it; belay prints none.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&t.json, "json", false, "print JSON, errors too, and no progress")
	root.SetUsageTemplate(root.UsageTemplate() + exitTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(err, "see: "+cmd.CommandPath()+" --help")
	})
	root.AddCommand(newRunCommand(t), newWorkerCommand(t), newRunsCommand(t), newGraphCommand(t),
		newPruneCommand(t), newFsckCommand(t), newBackupCommand(t), newMigrateCommand(t))
	root.AddCommand(newVerifyCommand(t))
	return exits(root)
}

// noArguments refuses what a command does not take, an unknown subcommand too.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unknown command or argument %q", args[0]), "see: "+cmd.CommandPath()+" --help")
	}
	return nil
}

// oneGraph demands exactly one argument, the graph's file.
func oneGraph(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(fmt.Errorf("one graph document is needed, not %d", len(args)), "as in: "+cmd.CommandPath()+" order.yaml")
	}
	return nil
}
