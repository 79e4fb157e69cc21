package backend

import (
	"cmp"
	"fmt"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The checks every backend does before it looks anything up, kept in one place so
// that backends cannot differ. Arguments come first and answer *ArgumentError (clause
// A1); what is answered with a checked copy has its instants normalized (clause A2).

// CheckRun checks the arguments of an operation on one run in a scope.
func CheckRun(scope Scope, id string) error {
	if err := scope.Validate(); err != nil {
		return err
	}
	return claim.CheckID("run id", id)
}

// CheckClaim checks the arguments of an operation under a token.
func CheckClaim(id string, token claim.Token) error {
	if err := claim.CheckID("run id", id); err != nil {
		return err
	}
	return claim.CheckID("token", string(token))
}

// CheckRelease checks the arguments of ReleaseClaim.
func CheckRelease(id string, token claim.Token, p claim.ReleasePolicy) (claim.ReleasePolicy, error) {
	if err := CheckClaim(id, token); err != nil {
		return p, err
	}
	p.Now = claim.Instant(p.Now)
	return p, p.Validate()
}

// CheckAbandon checks the arguments of AbandonClaim. A store that fills in its own
// clock's instant validates the policy again, since retry-at must not precede it.
func CheckAbandon(id string, token claim.Token, p claim.AbandonPolicy) (claim.AbandonPolicy, error) {
	if err := CheckClaim(id, token); err != nil {
		return p, err
	}
	p.Now, p.RetryAt = claim.Instant(p.Now), claim.Instant(p.RetryAt)
	return p, p.Validate()
}

// CheckPolicy checks what one ClaimDue is asked for, and refuses with ErrUnsupported
// what needs a feature that is not declared.
func CheckPolicy(p claim.Policy, f Features) (claim.Policy, error) {
	if err := p.Validate(); err != nil {
		return p, err
	}
	if !f.ClaimFilter && !p.Filter.IsZero() {
		return p, fmt.Errorf("%w: a claim filter (X4)", ErrUnsupported)
	}
	if !f.OwnerCap && p.OwnerCap > 0 {
		return p, fmt.Errorf("%w: a cap per owner (X10)", ErrUnsupported)
	}
	return p.Normal(), nil
}

// CheckInitialization does the first steps of InsertRun: arguments, then shape (clause
// R1). The events it answers with are deduplicated, and in order.
func CheckInitialization(owner Owner, in Initialization, f Features, limits value.Limits) (Initialization, error) {
	if err := owner.Validate(); err != nil {
		return in, err
	}
	if err := checkIDs(in.Document, in.CheckpointID); err != nil {
		return in, err
	}
	if in.Key != "" {
		if err := claim.CheckID("start key", in.Key); err != nil {
			return in, err
		}
	}
	if in.Window < 0 {
		return in, &ArgumentError{Argument: "window", Reason: "is negative"}
	}
	if in.Claim != nil && in.Claim.TTL < 0 {
		return in, &ArgumentError{Argument: "ttl", Reason: "is negative"}
	}
	if in.Claim != nil && !f.StartClaimed {
		return in, fmt.Errorf("%w: starting a run claimed (X1)", ErrUnsupported)
	}

	d := in.Document
	invalid := func(format string, args ...any) (Initialization, error) {
		return in, refuse(ErrInvalidCommit, format, args...)
	}
	switch {
	case d == nil:
		return invalid("it has no document")
	case d.Status != run.Running:
		return invalid("a run is inserted running, not %q", d.Status)
	case d.Seq < 1:
		return invalid("its sequence is %d, the first one is 1", d.Seq)
	case d.StartedAt.IsZero():
		return invalid("it has no start instant")
	case in.Type != checkpoint.RunInitialized:
		return invalid("a run is inserted by %q, not %q", checkpoint.RunInitialized, in.Type)
	case !in.Schedule.Valid():
		return invalid("its schedule is not one of the contract's")
	case in.Claim == nil && in.Schedule.Kind != checkpoint.ReleaseNow && in.Schedule.Kind != checkpoint.ReleaseAt:
		return invalid("without a claim it needs a wake (release-now or release-at), not %v", in.Schedule.Kind)
	case in.Claim != nil && in.Schedule.Kind != checkpoint.Retain:
		return invalid("with a claim it has no wake: its schedule is retain, not %v", in.Schedule.Kind)
	}
	var err error
	in.Proposal, err = checkContent(ErrInvalidCommit, in.Proposal, limits)
	return in, err
}

// CheckCommit does step 1 of Commit: arguments, then shape (clause T1). The events it
// answers with are deduplicated, and in order.
func CheckCommit(scope Scope, c Commit, limits value.Limits) (Commit, error) {
	if err := scope.Validate(); err != nil {
		return c, err
	}
	if err := checkIDs(c.Document, c.CheckpointID); err != nil {
		return c, err
	}
	if err := claim.CheckID("token", string(c.Token)); err != nil {
		return c, err
	}
	var err error
	c.Proposal, err = checkProposal(ErrInvalidCommit, c.Proposal, limits)
	return c, err
}

// CheckIdentity does step 3 of Commit, against the stored immutable facts of the run.
func CheckIdentity(stored Identity, d *run.Document) error {
	return checkIdentity(ErrInvalidCommit, stored, d)
}

// CheckMutate checks the arguments of MutateRun.
func CheckMutate(scope Scope, id string, commit checkpoint.ID, fn MutateFunc) error {
	if err := CheckRun(scope, id); err != nil {
		return err
	}
	if err := claim.CheckID("checkpoint id", string(commit)); err != nil {
		return err
	}
	if fn == nil {
		return &ArgumentError{Argument: "function", Reason: "is nil: pass what decides on the current document"}
	}
	return nil
}

// CheckMutation checks what a mutation's function proposed against the current document
// (clause T3). Whether the graph version that a graph_migrated mutation names is stored
// is for the store to find out; if not, the answer is ErrInvalidMutation too.
func CheckMutation(current *run.Document, p run.Proposal, limits value.Limits) (run.Proposal, error) {
	d := p.Document
	switch {
	case d == nil:
		return p, refuse(ErrInvalidMutation, "it has no document")
	case p.Expected != current.Seq:
		return p, refuse(ErrInvalidMutation, "it builds on sequence %d, the current one is %d", p.Expected, current.Seq)
	case p.Schedule.Kind == checkpoint.Retain:
		return p, refuse(ErrInvalidMutation, "there is no claim to retain: release the run")
	case !run.CanMove(current.Status, d.Status), current.Status == run.Waiting && d.Status == run.Waiting && p.Type != checkpoint.GraphMigrated:
		return p, refuse(ErrInvalidMutation, "a run cannot move from %s to %q", current.Status, d.Status)
	}
	stored := IdentityOf(current)
	if p.Type == checkpoint.GraphMigrated {
		stored.Graph.Hash = d.Graph.Hash
	}
	if err := checkIdentity(ErrInvalidMutation, stored, d); err != nil {
		return p, err
	}
	return checkProposal(ErrInvalidMutation, p, limits)
}

// Identity is what never changes about a run.
type Identity struct {
	Run       string
	Graph     graph.Ref
	StartedAt time.Time
}

// IdentityOf is the identity of a document.
func IdentityOf(d *run.Document) Identity {
	return Identity{Run: d.ID, Graph: d.Graph, StartedAt: claim.Instant(d.StartedAt)}
}

func checkIdentity(kind error, stored Identity, d *run.Document) error {
	switch {
	case d.ID != stored.Run:
		return refuse(kind, "it is for another run")
	case d.Graph.ID != stored.Graph.ID:
		return refuse(kind, "the graph id of a run never changes")
	case d.Graph.Hash != stored.Graph.Hash:
		return refuse(kind, "the graph version of a run changes only by a %s mutation", checkpoint.GraphMigrated)
	case !claim.Instant(d.StartedAt).Equal(stored.StartedAt):
		return refuse(kind, "the start instant of a run never changes")
	}
	return nil
}

// checkIDs checks the identifiers that a proposal carries. The absent document is a
// matter of shape.
func checkIDs(d *run.Document, commit checkpoint.ID) error {
	if d != nil {
		if err := claim.CheckID("run id", d.ID); err != nil {
			return err
		}
	}
	return claim.CheckID("checkpoint id", string(commit))
}

// checkProposal checks the shape of a commit or a mutation.
func checkProposal(kind error, p run.Proposal, limits value.Limits) (run.Proposal, error) {
	d := p.Document
	switch {
	case d == nil:
		return p, refuse(kind, "it has no document")
	case p.Expected < 0 || d.Seq != p.Expected+1:
		return p, refuse(kind, "its sequence is %d and it builds on %d: each commit advances it by one", d.Seq, p.Expected)
	case !p.Type.Valid():
		return p, refuse(kind, "its checkpoint type %q is unknown", p.Type)
	case !d.Status.Storable():
		return p, refuse(kind, "the status %q is never stored", d.Status)
	case !p.Schedule.Valid():
		return p, refuse(kind, "its schedule is not one of the contract's")
	case !run.Fits(p.Schedule, d.Status):
		return p, refuse(kind, "the schedule %v does not fit a run that is %s", p.Schedule.Kind, d.Status)
	}
	return checkContent(kind, p, limits)
}

// checkContent checks and normalizes what a proposal stores: document, events, sizes,
// instants.
func checkContent(kind error, p run.Proposal, limits value.Limits) (run.Proposal, error) {
	limits = limits.WithDefaults()
	p.Now = claim.Instant(p.Now)
	p.Schedule.At = claim.Instant(p.Schedule.At)
	p.Document = normalDocument(p.Document)
	if err := p.Document.Valid(); err != nil {
		return p, fmt.Errorf("%w: %w", kind, err)
	}
	if err := cmp.Or(claim.CheckID("graph id", p.Document.Graph.ID), claim.CheckID("graph hash", p.Document.Graph.Hash)); err != nil {
		return p, refuse(kind, "%v", err)
	}
	if err := run.CheckDocumentSize(p.Document, limits.Document); err != nil {
		return p, fmt.Errorf("%w: %w", kind, err)
	}
	events, err := checkEvents(kind, p.Document.ID, p.Events, limits)
	if err != nil {
		return p, err
	}
	p.Events = events
	return p, nil
}

// CheckQuery checks what a list of runs is asked for.
func CheckQuery(scope Scope, q Query) (Query, error) {
	if err := scope.Validate(); err != nil {
		return q, err
	}
	if q.GraphID != "" {
		if err := claim.CheckID("graph id", q.GraphID); err != nil {
			return q, err
		}
	}
	if q.GraphHash != "" {
		if err := claim.CheckID("graph hash", q.GraphHash); err != nil {
			return q, err
		}
	}
	for _, s := range q.Statuses {
		if !s.Storable() {
			return q, &ArgumentError{Argument: "statuses", Reason: fmt.Sprintf("hold %q, which no stored run has", s)}
		}
	}
	if q.Before.Run != "" {
		if err := claim.CheckID("cursor", q.Before.Run); err != nil {
			return q, err
		}
		if q.Before.StartedAt.IsZero() {
			return q, &ArgumentError{Argument: "cursor", Reason: "has a run but no instant: pass a page's Next as it is"}
		}
	}
	q.Before.StartedAt = claim.Instant(q.Before.StartedAt)
	return q, checkLimit(q.Limit)
}

// CheckEvent checks the arguments of FetchEvent.
func CheckEvent(scope Scope, id string, seq int64) error {
	if err := CheckRun(scope, id); err != nil {
		return err
	}
	if seq < 1 {
		return &ArgumentError{Argument: "sequence", Reason: "is below 1, the first event's"}
	}
	return nil
}

// CheckEventQuery checks what a list of events is asked for.
func CheckEventQuery(scope Scope, id string, q EventQuery) error {
	if err := CheckRun(scope, id); err != nil {
		return err
	}
	if q.After < 0 {
		return &ArgumentError{Argument: "after", Reason: "is negative: zero lists from the first event"}
	}
	return checkLimit(q.Limit)
}

// CheckSaveGraph checks the arguments of SaveGraph, then that the hash is the digest
// (ErrInvalidGraphHash). Clause G1.
func CheckSaveGraph(owner Owner, ref graph.Ref, raw value.Value) error {
	if err := CheckGraph(owner, ref); err != nil {
		return err
	}
	if len(raw) == 0 {
		return &ArgumentError{Argument: "graph", Reason: "is empty: pass its canonical bytes"}
	}
	if value.Hash(raw) != ref.Hash {
		return ErrInvalidGraphHash
	}
	return nil
}

// CheckGraph checks the name of a graph version.
func CheckGraph(owner Owner, ref graph.Ref) error {
	if err := CheckGraphID(owner, ref.ID); err != nil {
		return err
	}
	return claim.CheckID("graph hash", ref.Hash)
}

// CheckGraphID checks the name of a graph.
func CheckGraphID(owner Owner, id string) error {
	if err := owner.Validate(); err != nil {
		return err
	}
	return claim.CheckID("graph id", id)
}

// CheckGraphQuery checks what a list of graph versions is asked for.
func CheckGraphQuery(owner Owner, id string, q GraphQuery) (GraphQuery, error) {
	if err := CheckGraphID(owner, id); err != nil {
		return q, err
	}
	if q.Before.Hash != "" {
		if err := claim.CheckID("cursor", q.Before.Hash); err != nil {
			return q, err
		}
		if q.Before.PublishedAt.IsZero() {
			return q, &ArgumentError{Argument: "cursor", Reason: "has a hash but no instant: pass a page's Next as it is"}
		}
	}
	q.Before.PublishedAt = claim.Instant(q.Before.PublishedAt)
	return q, checkLimit(q.Limit)
}

// VerifyGraph answers ErrCorruptGraph when stored bytes are not those that were
// published under the version (clause G2).
func VerifyGraph(ref graph.Ref, raw value.Value) error {
	if value.Hash(raw) != ref.Hash {
		return fmt.Errorf("%w: version %s of %s", ErrCorruptGraph, ref.Hash, ref.ID)
	}
	return nil
}

// CheckPrune checks what retention is asked for (feature X7).
func CheckPrune(p PrunePolicy) (PrunePolicy, error) {
	if p.Before.IsZero() {
		return p, &ArgumentError{Argument: "before", Reason: "is not set: say how old a finished run must be"}
	}
	for _, s := range p.Statuses {
		if !s.Terminal() {
			return p, &ArgumentError{Argument: "statuses", Reason: fmt.Sprintf("hold %q: only finished runs are deleted", s)}
		}
	}
	p.Before = claim.Instant(p.Before)
	return p, checkLimit(p.Limit)
}

func checkLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return &ArgumentError{Argument: "limit", Reason: fmt.Sprintf("is %d: it must be 1 to %d", limit, MaxLimit)}
	}
	return nil
}

// refuse is a refusal of the kind, with its reason.
func refuse(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}
