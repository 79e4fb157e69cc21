package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/belay-run/belay/backend/postgres"
)

// server is a PostgreSQL database, and the schema of belay's in it, as --db names it.
type server struct {
	dsn    string // as the driver takes it
	schema string
	named  bool   // the DSN names the schema
	shown  string // for people: without passwords
}

// schemaParameter names the schema in a DSN. It is belay's own, and not sent to the server.
const schemaParameter = "belay_schema"

// defaultSchema is the backend's.
const defaultSchema = "belay"

func isServer(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres:") || strings.HasPrefix(dsn, "postgresql:")
}

// secrets are the parameters that are not shown.
var secrets = []string{"password", "sslpassword"}

// hidden stands where a secret does.
const hidden = "PASSWORD"

// parseServer reads a DSN. What is wrong with it is told without quoting it: a password with a
// character that separates parts is found in any of them.
func parseServer(dsn string) (server, error) {
	const form = "write it as postgres://USER:PASSWORD@HOST:PORT/DATABASE; in a name or a password write @ as %40, / as %2F, # as %23, ? as %3F"
	bad := func(what string) (server, error) {
		return server{}, usage(errors.New("the address of the database (of --db or BELAY_DB) cannot be read: "+what), form)
	}
	u, err := url.Parse(dsn)
	switch {
	case err != nil || u.Opaque != "" || !strings.HasPrefix(strings.TrimPrefix(dsn, u.Scheme), "://"):
		return bad("it is not a URL")
	case strings.Contains(dsn, "#"):
		return bad("it has a #")
	case strings.ContainsAny(strings.TrimPrefix(u.EscapedPath(), "/"), "/@"):
		return bad("its path is not the name of a database")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || strings.Contains(u.RawQuery, "@") {
		return bad("its parameters are not NAME=VALUE, separated by &")
	}
	for name := range query {
		switch {
		case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_.") != "":
			return bad("its parameters are not NAME=VALUE, separated by &")
		case name == "schema":
			return server{}, usage(errors.New("the address of the database has a parameter schema"), "name belay's schema with "+schemaParameter+"=NAME")
		}
	}
	s := server{schema: defaultSchema}
	if s.named = query.Has(schemaParameter); s.named {
		if s.schema = query.Get(schemaParameter); s.schema == "" {
			return server{}, usage(fmt.Errorf("%s is empty", schemaParameter), "name a schema, or leave it out for "+defaultSchema)
		}
	}
	safe := *u
	if _, has := u.User.Password(); has {
		safe.User = url.UserPassword(u.User.Username(), hidden)
	}
	visible := url.Values{}
	for name, values := range query {
		if slices.Contains(secrets, name) {
			values = []string{hidden}
		}
		visible[name] = values
	}
	safe.RawQuery = visible.Encode()
	s.shown = safe.String()
	query.Del(schemaParameter)
	u.RawQuery = query.Encode()
	s.dsn = u.String()
	return s, nil
}

// shown is a DSN as it may be printed.
func shown(dsn string) string {
	if !isServer(dsn) {
		return dsn
	}
	s, err := parseServer(dsn)
	if err != nil {
		return "postgres://..."
	}
	return s.shown
}

// openServer opens the store in a database. Its schema is never changed by the way: who may do that,
// and when, is for belay migrate.
func (l *location) openServer(ctx context.Context, dsn string, how opening) (*store, error) {
	to, err := parseServer(dsn)
	if err != nil {
		return nil, err
	}
	if how.logger == nil {
		how.logger = slog.New(slog.DiscardHandler)
	}
	pg, err := postgres.Open(ctx, to.dsn, postgres.Options{Schema: to.schema, VerifyOnly: true, Logger: how.logger})
	if err != nil {
		return nil, l.forServer(to, err)
	}
	return &store{Store: pg, place: l, finder: pg}, nil
}

// schema is the one that the store is in.
func (s *store) schema() string {
	if pg, ok := s.Store.(*postgres.Store); ok {
		return pg.Schema()
	}
	return ""
}

// forServer words a refusal of a database for somebody who cannot set options.
func (l *location) forServer(to server, err error) error {
	e, ok := errors.AsType[*postgres.SetupError](err)
	if !ok {
		return err
	}
	refused := *e
	remedy := withoutOptions(e.Remedy)
	switch e.Problem {
	case postgres.ProblemDSN:
		return usage(errors.New("the address of the database (of --db or BELAY_DB) cannot be read"), remedy)
	case postgres.ProblemForeign:
		remedy = "name another schema for belay, as in postgres://...?" + schemaParameter + "=NAME; what else is in " + to.schema + " is not touched"
	case postgres.ProblemOutdated:
		return &exitError{
			exitInfrastructure, fmt.Errorf("schema %s of %s is not up to date: %w", to.schema, to.shown, e.Err),
			"migrate it first, as a role that may create tables: " + l.again("migrate"),
		}
	}
	refused.Remedy = ""
	return &exitError{exitInfrastructure, &refused, remedy}
}
