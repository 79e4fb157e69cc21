package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend/postgres"
)

func newMigrateCommand(t *terminal) *cobra.Command {
	var dsn string
	var onlyPrint bool
	cmd := &cobra.Command{
		Use:   "migrate --db postgres://...",
		Short: "Bring the schema of a PostgreSQL database up to date",
		Long: `Create or update belay's schema in a PostgreSQL database, one migrator at a time, each migration in a
transaction of its own. No other command changes a schema: they say that it is to be migrated. Programs of the
release before go on working with the newer schema. The role has to be allowed to create the schema and its tables;
a role that only runs belay needs usage of the schema, and select, insert, update and delete on its tables.

With --print the SQL that is missing is printed, and nothing is changed: for somebody else to run with psql.
That says which rights the other role needs, too. (A SQLite file is migrated when it is opened.)`,
		Example: `  belay migrate --db postgres://owner@db/orders
  belay migrate --db 'postgres://belay@db/orders?` + schemaParameter + `=flows' --print >pending.sql`,
		Args: noArguments,
	}
	place := newLocation(t, cmd)
	cmd.Flags().StringVar(&dsn, "dsn", "", "another name of --db")
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "only print the SQL that is missing, for psql")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if dsn != "" && place.flag != "" {
			return usage(errors.New("--db and --dsn are two names of one flag"), "leave one out")
		}
		place.flag += dsn
		named, own, err := place.dsn()
		if err != nil {
			return err
		}
		if own || !isServer(named) {
			return usage(errors.New("only a PostgreSQL database is migrated by a command of its own: a SQLite file is when it is opened"),
				"as in: belay migrate --db postgres://OWNER@HOST/DATABASE")
		}
		to, err := parseServer(named)
		if err != nil {
			return err
		}
		opts := postgres.Options{Schema: to.schema}
		if onlyPrint {
			pending, err := postgres.PendingMigrations(cmd.Context(), to.dsn, opts)
			if err != nil {
				return place.forServer(to, err)
			}
			return t.pending(to, pending)
		}
		applied, err := postgres.Migrate(cmd.Context(), to.dsn, opts)
		if err != nil {
			err = place.forServer(to, err)
			if refused, ok := errors.AsType[*postgres.SetupError](err); ok && refused.Problem == postgres.ProblemPrivilege {
				err = &exitError{exitInfrastructure, err, hintOf(err) + "; the SQL for somebody who may: " + place.again("migrate", "--print")}
			}
			return err
		}
		return t.migrated(to, applied)
	}
	return exits(cmd, exitInfrastructure)
}

func (t *terminal) pending(to server, pending postgres.Pending) error {
	if t.json {
		return t.result(struct {
			Schema  string   `json:"schema"`
			Pending []string `json:"pending"`
			SQL     string   `json:"sql,omitempty"`
		}{to.schema, append([]string{}, pending.Migrations...), pending.Script})
	}
	if len(pending.Migrations) == 0 {
		t.say("schema %s is up to date", to.schema)
		return nil
	}
	_, err := fmt.Fprintf(t.out, "-- Migrates the schema %s of belay: %s.\n%s", to.schema, strings.Join(pending.Migrations, ", "), pending.Script)
	return err
}

func (t *terminal) migrated(to server, applied []string) error {
	if t.json {
		return t.result(struct {
			Schema  string   `json:"schema"`
			Applied []string `json:"applied"`
		}{to.schema, append([]string{}, applied...)})
	}
	for _, name := range applied {
		if _, err := fmt.Fprintln(t.out, "applied", name); err != nil {
			return err
		}
	}
	t.say("schema %s is up to date", to.schema)
	return nil
}

// hintOf is what an error says to do next.
func hintOf(err error) string {
	if coded := (*exitError)(nil); errors.As(err, &coded) {
		return coded.hint
	}
	return ""
}
