package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
)

// TestConformanceOfModes (H23): the whole contract in the modes of pgx that prepare nothing.
func TestConformanceOfModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			proptest.Conformance(t, opener(t, through(t, pgtest.DSN(t), mode)), proptest.Options{})
		})
	}
}

// TestDescribingModes: the two modes between those send the same arguments as either.
func TestDescribingModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			only := []string{"R1", "R2", "R5", "K3", "K6", "K7", "K8", "K9", "T2", "T3", "T6", "E2", "G3", "X2", "X7"}
			proptest.Conformance(t, opener(t, through(t, pgtest.DSN(t), mode)), proptest.Options{Only: only})
		})
	}
}
