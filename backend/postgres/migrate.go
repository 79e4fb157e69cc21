package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belay-run/belay/backend"
)

// oldestServer is the oldest version that is tested, as server_version_num says it.
const oldestServer = 130000

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations are the files that bring a schema up to date, in the order of their names.
// They name the schema as psql interpolates a variable: psql -v schema=belay -f FILE. A
// schema that was migrated by hand needs the ledger too; Open keeps it.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return migrationFiles
	}
	return sub
}

// migration is one step of the schema, forward only.
type migration struct {
	number int64
	name   string
	text   string
	hash   string
	// from is the oldest schema whose programs still work with this one: the previous
	// release's must, so that a fleet can roll.
	from int64
}

// compatibleFrom is the line of a migration that says what from is; without it, the
// migration breaks nothing.
const compatibleFrom = "-- compatible from: "

func loadMigrations() ([]migration, error) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, e := range entries {
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			return nil, err
		}
		m, err := newMigration(e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b migration) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

func newMigration(name, text string) (migration, error) {
	digits, _, _ := strings.Cut(name, "_")
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return migration{}, fmt.Errorf("migration %s has no number: %w", name, err)
	}
	sum := sha256.Sum256([]byte(text))
	m := migration{number: number, name: name, text: text, hash: hex.EncodeToString(sum[:]), from: 1}
	for line := range strings.Lines(text) {
		if from, ok := strings.CutPrefix(line, compatibleFrom); ok {
			if m.from, err = strconv.ParseInt(strings.TrimSpace(from), 10, 64); err != nil {
				return migration{}, fmt.Errorf("migration %s: %w", name, err)
			}
		}
	}
	return m, nil
}

// ledger is where the migrations that were applied are kept.
const ledger = `create table if not exists :"schema".migrations (
  number bigint not null,
  name text collate "C" not null,
  sha256 text collate "C" not null,
  compatible_from bigint not null,
  applied_at timestamptz not null,
  constraint migrations_key primary key (number)
)`

// setUp refuses what it must not touch, then migrates.
func (s *Store) setUp(ctx context.Context) error {
	return s.settingUp(ctx, func(ctx context.Context, all []migration) error {
		missing, err := s.missing(ctx, s.pool, all)
		switch {
		case err != nil || len(missing) == 0:
			return err
		case s.opts.VerifyOnly:
			return s.outdated(missing)
		}
		_, err = s.migrate(ctx, all)
		return err
	})
}

// settingUp does something with the schema of a server that can be used, within
// Options.SetupTimeout. Whatever it is, it is found done when it is done again.
func (s *Store) settingUp(ctx context.Context, do func(ctx context.Context, all []migration) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.SetupTimeout)
	defer cancel()
	all, err := loadMigrations()
	if err != nil {
		return err
	}
	var wait backoff
	for begun := time.Now(); ; {
		err := s.checkServer(ctx)
		if err == nil {
			err = do(ctx, all)
		}
		if !passes(err) || isEnded(ctx) || time.Since(begun) >= s.opts.RetryTimeout || wait.pause(ctx) != nil {
			return s.explain(err)
		}
	}
}

// passes reports whether what went wrong while setting up is over soon: the server is there, and
// has no connection left, say, or ended one.
func passes(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*SetupError](err); ok {
		return false
	}
	switch c := code(err); c {
	case "":
		return !isConnecting(err) && pgconn.SafeToRetry(err) || isLost(err)
	case codeCannotConnectNow, codeTooManyConnections, codeSerializationFailure, codeDeadlock, codeLockNotAvailable, codeAdminShutdown, codeCrashShutdown:
		return true
	default:
		return isConnecting(err) && nature(err) == backend.Transient
	}
}

// isLost reports whether the connection ended while the server had not answered yet.
func isLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return !isConnecting(err) && (network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
}

func (s *Store) checkServer(ctx context.Context) error {
	var version int64
	var encoding string
	const ask = "select current_setting('server_version_num')::bigint, current_setting('server_encoding')"
	if err := s.pool.QueryRow(ctx, ask).Scan(&version, &encoding); err != nil {
		return err
	}
	switch {
	case version < oldestServer:
		return &SetupError{
			Problem: ProblemVersion, Err: fmt.Errorf("the server is version %d, the oldest one is %d", version/10000, oldestServer/10000),
			Remedy: "use a newer server",
		}
	case encoding != "UTF8":
		return &SetupError{
			Problem: ProblemEncoding, Err: fmt.Errorf("the database's encoding is %s", encoding),
			Remedy: "create a database with encoding UTF8",
		}
	}
	return nil
}

// missing compares the ledger with all, and answers what is still to be applied.
func (s *Store) missing(ctx context.Context, db session, all []migration) ([]migration, error) {
	exists := false
	quoted := pgx.Identifier{s.opts.Schema, "migrations"}.Sanitize()
	rows, err := db.Query(ctx, "select to_regclass($1::text) is not null", quoted)
	if err != nil {
		return nil, err
	}
	if exists, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool]); err != nil || !exists {
		return all, err
	}
	rows, err = db.Query(ctx, "select number, name, sha256, compatible_from from "+quoted+" order by number")
	var applied []migration
	if err == nil {
		applied, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (m migration, err error) {
			err = r.Scan(&m.number, &m.name, &m.hash, &m.from)
			return m, err
		})
	}
	if code(err) == codeUndefinedColumn {
		return nil, &SetupError{Problem: ProblemForeign, Err: fmt.Errorf("its table migrations is not belay's: %w", err), Remedy: s.elsewhere()}
	}
	if err != nil {
		return nil, err
	}
	last := all[len(all)-1].number
	for i, m := range applied {
		switch {
		case m.number > last && m.from > last:
			return nil, &SetupError{
				Problem: ProblemNewer, Err: fmt.Errorf("migration %d (%s) needs programs that know schema %d, this one knows %d", m.number, m.name, m.from, last),
				Remedy: "use that version of belay or a later one",
			}
		case m.number > last:
		case i >= len(all) || all[i].number != m.number || all[i].hash != m.hash:
			return nil, &SetupError{
				Problem: ProblemLedger, Err: fmt.Errorf("migration %d (%s) is not the one of this build", m.number, m.name),
				Remedy: "use a released build; a schema of an unreleased one is not carried on",
			}
		}
	}
	if len(applied) >= len(all) {
		return nil, nil
	}
	return all[len(applied):], nil
}

func (s *Store) outdated(missing []migration) error {
	what := fmt.Errorf("%s and later migrations are missing, %d in all", missing[0].name, len(missing))
	switch {
	case missing[0].number == 1:
		what = errors.New("nothing of belay is in it yet")
	case len(missing) == 1:
		what = fmt.Errorf("the migration %s is missing", missing[0].name)
	}
	return &SetupError{
		Problem: ProblemOutdated, Err: what,
		Remedy: "migrate it with a role that may create tables",
	}
}

// migrate applies what is missing, one migrator at a time and a transaction for each migration: a
// migrator that is killed leaves the schema of a migration before, which is a schema like every other.
//
// Statements of programs that work meanwhile lock tables in orders of their own. A migrator that
// cannot have a table soon therefore gives everything back and begins again, before the server
// would find a deadlock, and until its time is over. So it must not hold a table of one migration
// while it waits for that of another: under load it would never get both.
func (s *Store) migrate(ctx context.Context, all []migration) (applied []migration, err error) {
	var wait backoff
	for {
		next, err := s.migrateOnce(ctx, all)
		switch c := code(err); {
		case c == codeLockNotAvailable || c == codeDeadlock:
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < s.opts.SetupTimeout/8 || wait.pause(ctx) != nil {
				return applied, err
			}
		case err != nil:
			return applied, err
		case next == nil:
			return applied, nil
		default:
			applied, wait = append(applied, *next), backoff{}
		}
	}
}

// migrateOnce is migrateIn in a transaction of its own.
func (s *Store) migrateOnce(ctx context.Context, all []migration) (next *migration, err error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	if next, err = s.migrateIn(ctx, tx, all); err != nil {
		return nil, s.rollback(ctx, tx, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	return next, nil
}

// tableWait bounds how long a migrator waits for a table, and others for it while it does: less
// than the time after which the server looks for deadlocks.
const tableWait = 300 * time.Millisecond

// migrateIn applies the first of the migrations that are missing; nil when none is.
func (s *Store) migrateIn(ctx context.Context, tx pgx.Tx, all []migration) (*migration, error) {
	// Waiting is bounded by the server too, which then says what was waited for.
	begin := fmt.Sprintf("set local lock_timeout = %d; set local statement_timeout = 0; select pg_advisory_xact_lock(%d)",
		max(1, (s.opts.SetupTimeout-s.opts.SetupTimeout/8).Milliseconds()), s.lockKey("migrate"))
	if err := script(ctx, tx, begin); err != nil {
		return nil, err
	}
	create, err := s.creation(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := script(ctx, tx, create); err != nil {
		return nil, err
	}
	missing, err := s.missing(ctx, tx, all)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	m := missing[0]
	text := fmt.Sprintf("set local lock_timeout = %d;\n%s", tableWait.Milliseconds(), inSchema(m.text, s.opts.Schema))
	if err := script(ctx, tx, text); err != nil {
		return nil, fmt.Errorf("migration %s: %w", m.name, err)
	}
	if err := s.checkIndexes(ctx, tx, m); err != nil {
		return nil, err
	}
	if len(missing) == len(all) {
		columns, err := s.compression(ctx, tx)
		if err == nil && columns != "" {
			err = script(ctx, tx, columns)
		}
		if err != nil {
			return nil, err
		}
	}
	return &m, script(ctx, tx, s.entry(m))
}

// beforehand is how a migration makes an index that may be there already.
var beforehand = regexp.MustCompile(`create index if not exists (\w+) `)

// checkIndexes refuses an index that was there already and is not what the migration would have made:
// the migration leaves it as it is, also when its building has failed, or goes on.
func (s *Store) checkIndexes(ctx context.Context, tx pgx.Tx, m migration) error {
	names := beforehand.FindAllStringSubmatch(m.text, -1)
	if len(names) == 0 {
		return nil
	}
	described, err := s.describe(ctx, tx, tablesOf(golden))
	if err != nil {
		return err
	}
	want, got := indexesOf(golden), indexesOf(described)
	for _, name := range names {
		name := name[1]
		quoted := pgx.Identifier{s.opts.Schema, name}.Sanitize()
		e := &SetupError{
			Problem: ProblemIndex,
			Remedy:  "if nobody is building it, drop it (drop index concurrently " + quoted + "); then build it again, or let the migration do so",
		}
		switch is := got[name]; {
		case is == "":
			e.Err, e.Remedy = fmt.Errorf("the name %s is taken by something else", quoted), s.elsewhere()
		case strings.HasSuffix(is, " invalid"):
			e.Err = fmt.Errorf("%s is not valid: building it concurrently has failed, or is going on", quoted)
		case want[name] != "" && want[name] != is:
			e.Err = fmt.Errorf("%s is there and is another index than the migration makes: it is %q, and has to be %q", quoted, is, want[name])
		default:
			continue
		}
		return e
	}
	return nil
}

// indexesOf are the indexes of a described schema, by their names.
func indexesOf(described string) map[string]string {
	indexes := make(map[string]string)
	for line := range strings.Lines(described) {
		if words := strings.Fields(line); len(words) > 2 && words[1] == "index" {
			indexes[words[2]] = strings.TrimSpace(line)
		}
	}
	return indexes
}

// creation is the schema, when there is none, and the ledger. An owner of the schema need not be
// allowed to create schemas.
func (s *Store) creation(ctx context.Context, db querier) (string, error) {
	exists := false
	if err := db.QueryRow(ctx, "select to_regnamespace($1::text) is not null", pgx.Identifier{s.opts.Schema}.Sanitize()).Scan(&exists); err != nil {
		return "", err
	}
	create := inSchema(ledger, s.opts.Schema)
	if !exists {
		create = "create schema " + pgx.Identifier{s.opts.Schema}.Sanitize() + ";\n" + create
	}
	return create, nil
}

// entry notes a migration in the ledger. Its values are this package's own, and need no quoting.
func (s *Store) entry(m migration) string {
	const note = `insert into :"schema".migrations (number, name, sha256, compatible_from, applied_at)
values (%d, '%s', '%s', %d, clock_timestamp())`
	return inSchema(fmt.Sprintf(note, m.number, m.name, m.hash, m.from), s.opts.Schema)
}

// compression has large values compressed with lz4 where the server was built with it: it
// costs a third of the server's own method. It is empty where it was not.
func (s *Store) compression(ctx context.Context, db querier) (string, error) {
	offered := false
	const ask = "select exists (select from pg_settings where name = 'default_toast_compression' and 'lz4' = any (enumvals))"
	if err := db.QueryRow(ctx, ask).Scan(&offered); err != nil || !offered {
		return "", err
	}
	const columns = `alter table :"schema".runs alter column document set compression lz4;
alter table :"schema".events alter column body set compression lz4;
alter table :"schema".graphs alter column body set compression lz4`
	return inSchema(columns, s.opts.Schema), nil
}

// querier reads one row: the pool, or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// script runs a text of several statements, which only the simple protocol carries.
func script(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	return err
}

// describe is tables of the schema (none: every one) as the server tells them, a line for each part.
// What the server's version or build decides is not in it.
func (s *Store) describe(ctx context.Context, db session, tables []string) (string, error) {
	var b strings.Builder
	err := s.run(ctx, db, stSchemaDescribe, func(r pgx.Rows) error {
		var line string
		err := scan(r, &line)
		b.WriteString(line + "\n")
		return err
	}, s.opts.Schema, tables)
	return b.String(), err
}

// tablesOf are the tables of a described schema.
func tablesOf(described string) (names []string) {
	for line := range strings.Lines(described) {
		name, _, _ := strings.Cut(line, " ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// explain makes a *SetupError of what failed while setting up.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*SetupError](err); ok {
		return err
	}
	e := explained(err)
	switch c := code(err); {
	case e.Problem == ProblemPrivilege:
		e.Remedy = fmt.Sprintf("migrate once with a role that may create the schema %q and its tables, then grant this role usage of the schema, "+
			"and select, insert, update and delete on its tables", s.opts.Schema)
	case c == codeLockNotAvailable || !isConnecting(err) && errors.Is(err, context.DeadlineExceeded):
		e.Problem, e.Remedy = ProblemBusy, fmt.Sprintf("see what holds the schema's tables, or raise Options.SetupTimeout above %v", s.opts.SetupTimeout.Round(time.Millisecond))
	case c == codeDuplicateTable:
		e.Problem, e.Remedy = ProblemForeign, s.elsewhere()
	}
	return e
}

// explained is what the server has answered, or the way to it, with what to do.
func explained(err error) *SetupError {
	problem, remedy := diagnose(err)
	return &SetupError{Problem: problem, Remedy: remedy, Err: err}
}

// elsewhere is what to do about a schema that something else lives in.
func (s *Store) elsewhere() string {
	return fmt.Sprintf("give belay a schema of its own with Options.Schema; the tables of something else in %q are not touched", s.opts.Schema)
}
