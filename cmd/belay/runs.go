package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

func newRunsCommand(t *terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, explain, answer, cancel, retry and migrate runs",
		Long: `Look at runs that are kept, and tell them things. A run is named by its id, or by the beginning of it
as long as no other run's begins the same.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	desk := &desk{place: newLocation(t, cmd), terminal: t}
	cmd.PersistentFlags().StringVar(&desk.tenant, "tenant", "",
		"only this tenant's runs; --tenant= for the runs of no tenant (default: everyone's)")
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) { desk.narrowed = cmd.Flags().Changed("tenant") }
	cmd.AddCommand(newRunsList(desk), newRunsShow(desk), newRunsEvents(desk), newRunsExplain(desk),
		newRunsResolve(desk), newRunsCancel(desk), newRunsRetry(desk), newRunsMigrate(desk))
	return exits(cmd)
}

// desk is what the commands on runs share.
type desk struct {
	terminal *terminal
	place    *location
	tenant   string
	narrowed bool // to the tenant
}

func (d *desk) scope() backend.Scope {
	switch {
	case !d.narrowed:
		return backend.System()
	case d.tenant == "":
		return backend.Of(backend.Tenantless())
	}
	return backend.Of(backend.Tenant(d.tenant))
}

// use opens the store for a command.
func (d *desk) use(ctx context.Context, f func(s *store) error) (err error) {
	s, err := d.place.existing(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// useRun opens the store, and finds the run.
func (d *desk) useRun(ctx context.Context, prefix string, f func(s *store, info backend.Info) error) error {
	return d.use(ctx, func(s *store) error {
		info, err := findRun(ctx, s, d.scope(), prefix)
		if err != nil {
			return err
		}
		return f(s, info)
	})
}

// maxCandidates is how many runs are named when a beginning fits several.
const maxCandidates = 10

// ambiguousError is a beginning that several ids have.
type ambiguousError struct {
	prefix     string
	candidates []string
	more       bool
}

func (e *ambiguousError) Error() string {
	text := fmt.Sprintf("%s begins the ids of several runs: %s", e.prefix, strings.Join(e.candidates, ", "))
	if e.more {
		text += " and more"
	}
	return text
}

// findRun finds the run whose id is, or begins with, a text.
func findRun(ctx context.Context, s *store, scope backend.Scope, prefix string) (backend.Info, error) {
	ids, err := s.beginning(ctx, scope, prefix, maxCandidates+1)
	switch {
	case err != nil:
		return backend.Info{}, err
	case len(ids) == 0:
		return backend.Info{}, usage(fmt.Errorf("no run's id is %s, or begins so", prefix), "see: "+s.place.again("runs", "list"))
	case len(ids) > 1 && ids[0] != prefix: // in their order, so an id that is meant whole comes first
		e := &ambiguousError{prefix, ids, len(ids) > maxCandidates}
		e.candidates = ids[:min(len(ids), maxCandidates)]
		return backend.Info{}, usage(e, "give more of the id")
	}
	return s.InspectRun(ctx, scope, ids[0])
}

// beginning lists ids that begin with a text, in their order, at most limit of them.
func (s *store) beginning(ctx context.Context, scope backend.Scope, prefix string, limit int) ([]string, error) {
	if s.finder != nil {
		return s.finder.FindRuns(ctx, scope, prefix, limit)
	}
	if err := backend.CheckRun(scope, prefix); err != nil {
		return nil, err
	}
	info, err := s.InspectRun(ctx, scope, prefix)
	if err == nil {
		return []string{info.Document.ID}, nil
	}
	if !errors.Is(err, backend.ErrNotFound) {
		return nil, err
	}
	var ids []string
	for q := (backend.Query{Limit: backend.MaxLimit}); ; {
		page, err := s.ListRuns(ctx, scope, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			if strings.HasPrefix(r.Run, prefix) && len(ids) < limit {
				ids = append(ids, r.Run)
			}
		}
		if !page.HasMore || len(ids) == limit {
			return ids, nil
		}
		q.Before = page.Next
	}
}

// oneRun demands the run's id, and the named arguments behind it.
func oneRun(more ...string) cobra.PositionalArgs {
	names := append([]string{"RUN"}, more...)
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage(fmt.Errorf("it takes %s, and not %s", strings.Join(names, " "), count(len(args), "argument")),
				"see: "+cmd.CommandPath()+" --help")
		}
		return nil
	}
}

// state is what a run is about to do, finer than its status.
type state string

// The states of running runs; those of others are their status.
const (
	stateReady     state = "ready"     // due, and nobody has it
	stateScheduled state = "scheduled" // due later
	stateClaimed   state = "claimed"   // a process has it
	stateExpired   state = "expired"   // the process that has it gave no sign of life for a TTL
	statePoisoned  state = "poisoned"
)

func stateOf(r backend.Summary, now time.Time) state {
	switch {
	case r.Status != run.Running:
		return state(r.Status)
	case !r.Poison.At.IsZero():
		return statePoisoned
	case !r.ClaimedAt.IsZero() && now.Sub(r.ClaimedAt) > claimTTL:
		return stateExpired
	case !r.ClaimedAt.IsZero():
		return stateClaimed
	case r.Wake.After(now):
		return stateScheduled
	}
	return stateReady
}

// summary is a run in a list, as --json prints it.
type summary struct {
	Run        string     `json:"run"`
	Tenant     string     `json:"tenant,omitempty"`
	Graph      graph.Ref  `json:"graph"`
	Status     run.Status `json:"status"`
	State      state      `json:"state"`
	Seq        int64      `json:"seq"`
	StartedAt  time.Time  `json:"started_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	FinishedAt time.Time  `json:"finished_at,omitzero"`
	Wake       time.Time  `json:"wake,omitzero"`
	ClaimedAt  time.Time  `json:"claimed_at,omitzero"`
	Attempts   int        `json:"attempts"`
	Abandons   int        `json:"abandons"`
	Poison     *poison    `json:"poison,omitempty"`
}

func summarize(r backend.Summary, now time.Time) summary {
	tenant, _ := r.Owner.Tenant()
	s := summary{
		Run: r.Run, Tenant: tenant, Graph: r.Graph, Status: r.Status, State: stateOf(r, now), Seq: r.Seq,
		StartedAt: r.StartedAt, UpdatedAt: r.UpdatedAt, FinishedAt: r.FinishedAt, Wake: r.Wake, ClaimedAt: r.ClaimedAt,
		Attempts: r.Attempts, Abandons: r.Abandons,
	}
	if !r.Poison.At.IsZero() {
		s.Poison = &poison{r.Poison.At, r.Poison.Reason}
	}
	return s
}

// summaryOf is the list's view of a run that was read whole.
func summaryOf(i backend.Info) backend.Summary {
	d := i.Document
	return backend.Summary{
		Run: d.ID, Owner: i.Owner, Graph: d.Graph, Status: d.Status, Seq: d.Seq,
		StartedAt: d.StartedAt, UpdatedAt: d.UpdatedAt, FinishedAt: d.FinishedAt, Wake: i.Wake, ClaimedAt: i.ClaimedAt,
		Attempts: i.Attempts, Abandons: i.Abandons, Poison: i.Poison,
	}
}
