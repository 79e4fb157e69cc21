package postgres

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.golden
var golden string

//go:embed sql/*.sql
var statementFiles embed.FS

// placeholder is where a statement names the schema, as psql interpolates a variable
// that is an identifier.
const placeholder = `:"schema"`

// statement is the name of a file in sql, without its ending.
type statement string

const (
	stAbandon                statement = "abandon"
	stAuditEvents            statement = "audit_events"
	stAuditGraphs            statement = "audit_graphs"
	stAuditKeys              statement = "audit_keys"
	stAuditOrphans           statement = "audit_orphans"
	stAuditRuns              statement = "audit_runs"
	stMendKey                statement = "mend_key"
	stMendRow                statement = "mend_row"
	stMendWake               statement = "mend_wake"
	stClaim                  statement = "claim"
	stClock                  statement = "clock"
	stCommit                 statement = "commit"
	stCommitGroup            statement = "commit_group"
	stDueCap                 statement = "due_cap"
	stDueClock               statement = "due_clock"
	stDueExpired             statement = "due_expired"
	stDueHeld                statement = "due_held"
	stDueNamed               statement = "due_named"
	stDueOfOwners            statement = "due_of_owners"
	stDueOwners              statement = "due_owners"
	stDueReady               statement = "due_ready"
	stDueTake                statement = "due_take"
	stEventFetch             statement = "event_fetch"
	stEventLatest            statement = "event_latest"
	stEventList              statement = "event_list"
	stEventStored            statement = "event_stored"
	stGraphFetch             statement = "graph_fetch"
	stGraphList              statement = "graph_list"
	stGraphSave              statement = "graph_save"
	stInsert                 statement = "insert"
	stInsertClassify         statement = "insert_classify"
	stInsertGroup            statement = "insert_group"
	stInsertKeyed            statement = "insert_keyed"
	stMutate                 statement = "mutate"
	stMutateRead             statement = "mutate_read"
	stPruneCount             statement = "prune_count"
	stPruneGraphs            statement = "prune_graphs"
	stPruneGraphsLock        statement = "prune_graphs_lock"
	stPruneLease             statement = "prune_lease"
	stPruneMore              statement = "prune_more"
	stPruneRuns              statement = "prune_runs"
	stPruneTurns             statement = "prune_turns"
	stRecover                statement = "recover"
	stRefresh                statement = "refresh"
	stRefreshGroup           statement = "refresh_group"
	stRelease                statement = "release"
	stRunFetch               statement = "run_fetch"
	stRunFind                statement = "run_find"
	stRunInspect             statement = "run_inspect"
	stRunList                statement = "run_list"
	stRunListByStatus        statement = "run_list_by_status"
	stRunListOfOwner         statement = "run_list_of_owner"
	stRunListByStatusOfOwner statement = "run_list_by_status_of_owner"
	stRunLock                statement = "run_lock"
	stRunOwner               statement = "run_owner"
	stSchemaDescribe         statement = "schema_describe"
	stTurnTake               statement = "turn_take"
)

// loadStatements reads every statement, for a schema.
func loadStatements(schema string) (map[statement]string, error) {
	entries, err := statementFiles.ReadDir("sql")
	if err != nil {
		return nil, err
	}
	texts := make(map[statement]string, len(entries))
	for _, e := range entries {
		text, err := statementFiles.ReadFile("sql/" + e.Name())
		if err != nil {
			return nil, err
		}
		texts[statement(strings.TrimSuffix(e.Name(), ".sql"))] = inSchema(string(text), schema)
	}
	return texts, nil
}

// inSchema puts the quoted name of a schema into a text, without the comments, which
// would be sent to the server each time.
func inSchema(text, schema string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if code, _, comment := strings.Cut(line, "--"); comment && strings.TrimSpace(code) == "" {
			continue
		}
		b.WriteString(line)
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), placeholder, pgx.Identifier{schema}.Sanitize())
}

// text is a statement's text.
func (s *Store) text(st statement) (string, error) {
	text, ok := s.texts[st]
	if !ok {
		return "", fmt.Errorf("belay: there is no statement %q", st)
	}
	return text, nil
}
