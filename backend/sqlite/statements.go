package sqlite

import (
	"embed"
	"fmt"
	"strings"
)

// A statement of production: every one is prepared once a connection, and has its
// query plan looked at by a test.
type statement struct {
	name, text string
	index      int
	writes     bool
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements is filled while the variables below are initialized, in their order.
var statements []*statement

func load(name string) *statement {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("belay: statement %s is not embedded: %v", name, err))
	}
	st := &statement{name: name, text: string(text), index: len(statements)}
	for line := range strings.Lines(st.text) {
		if verb, _, _ := strings.Cut(line, " "); verb == "insert" || verb == "update" || verb == "delete" {
			st.writes = true
		}
	}
	statements = append(statements, st)
	return st
}

var (
	stBegin             = load("begin")
	stBeginRead         = load("begin_read")
	stCommit            = load("commit")
	stRollback          = load("rollback")
	stSavepoint         = load("savepoint")
	stSavepointRelease  = load("savepoint_release")
	stSavepointRollback = load("savepoint_rollback")

	stRunInsert           = load("run_insert")
	stRunIdentify         = load("run_identify")
	stRunFirstCheckpoint  = load("run_first_checkpoint")
	stRunCheckpointExists = load("run_checkpoint_exists")
	stDocumentInsert      = load("document_insert")
	stDocumentUpdate      = load("document_update")
	stDocumentOf          = load("document_of")
	stKeyFind             = load("key_find")
	stKeyTake             = load("key_take")

	stCommitRetain   = load("commit_retain")
	stCommitRelease  = load("commit_release")
	stCommitClassify = load("commit_classify")
	stMutate         = load("mutate")
	stMutateRead     = load("mutate_read")

	stDueReady        = load("due_ready")
	stDueReadyOfOwner = load("due_ready_of_owner")
	stDueFirstOwner   = load("due_first_owner")
	stDueNextOwner    = load("due_next_owner")
	stDueExpired      = load("due_expired")
	stClaimsHeld      = load("claims_held")
	stTurnOf          = load("turn_of")
	stTurnTake        = load("turn_take")
	stRunState        = load("run_state")
	stClaimStore      = load("claim_store")
	stClaimRefresh    = load("claim_refresh")

	stRunFetch       = load("run_fetch")
	stRunInspect     = load("run_inspect")
	stRunList        = load("run_list")
	stRunListOfOwner = load("run_list_of_owner")
	stRunListLive    = load("run_list_live")
	stRunFind        = load("run_find")
	stRunNumber      = load("run_number")
	stEventAt        = load("event_at")
	stEventList      = load("event_list")
	stEventFrom      = load("event_from")
	stEventLast      = load("event_last")
	stEventInsert    = load("event_insert")
	stEventLatest    = load("event_latest")
	stEventBounds    = load("event_bounds")

	stGraphExists = load("graph_exists")
	stGraphSave   = load("graph_save")
	stGraphFetch  = load("graph_fetch")
	stGraphList   = load("graph_list")
	stReferences  = load("graph_references")

	stPruneRuns        = load("prune_runs")
	stPruneCheck       = load("prune_check")
	stPruneCountEvents = load("prune_count_events")
	stPruneEvents      = load("prune_events")
	stPruneDocument    = load("prune_document")
	stPruneKeys        = load("prune_keys")
	stPruneDriver      = load("prune_driver")
	stPruneRun         = load("prune_run")
	stPruneGraphs      = load("prune_graphs")
	stPruneGraph       = load("prune_graph")
	stPruneTurns       = load("prune_turns")
	stPrunePages       = load("prune_pages")

	stAuditRuns    = load("audit_runs")
	stAuditEvents  = load("audit_events")
	stAuditGraphs  = load("audit_graphs")
	stAuditOrphans = load("audit_orphans")
	stAuditKeys    = load("audit_keys")
	stKeyFree      = load("key_free")

	stDriverNote = load("driver_note")
	stDriverOf   = load("driver_of")
)
