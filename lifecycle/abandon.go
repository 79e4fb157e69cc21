package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// Why a run is abandoned, besides the codes of node.Incompatibility.
const (
	// CodeNewerDocument: the document is of a format this binary cannot read.
	CodeNewerDocument = "newer_document_format"
	// CodeSealedDocument: the document is sealed with a key that this process does not have.
	CodeSealedDocument = "sealed_document"
	// CodeCorruptDocument: the stored document is damaged, or contradicts its graph.
	CodeCorruptDocument = "corrupt_document"
	// CodeUndecodableGraph: the stored graph does not compile here.
	CodeUndecodableGraph = "undecodable_graph"
	// CodeCorruptGraph: the stored graph is damaged.
	CodeCorruptGraph = "corrupt_graph"
	// CodeMissingGraph: the graph version the run names is not stored.
	CodeMissingGraph = "missing_graph"
)

// Abandon is a run that was handed back because it cannot begin here.
type Abandon struct {
	Run     string
	Graph   graph.Ref
	Seq     int64
	Reasons []node.Incompatibility
	// Disposition says what the hand-back did: rescheduled, poisoned, or stale.
	Disposition claim.Disposition
}

// maxAbandonBackoff caps the exponential delay of abandons that never poison.
const maxAbandonBackoff = 10 * time.Minute

// refuseDocument and refuseGraph say what it means that the run could not be got ready: it can
// never begin here, or that was trouble of the moment.
func (v *vehicle) refuseDocument(err error) {
	if errors.Is(err, backend.ErrNotFound) {
		v.lost(FenceBegin, "the run does not exist any more")
	} else if code := documentCode(err); code != "" {
		v.abandon(reason(code, err), err)
	} else {
		v.later(err)
	}
}

// documentCode is what is wrong with a stored document; empty: nothing that lasts.
func documentCode(err error) string {
	switch {
	case errors.Is(err, run.ErrFormat):
		return CodeNewerDocument
	case errors.Is(err, backend.ErrSealed):
		return CodeSealedDocument
	case errors.Is(err, backend.ErrCorrupt), errors.Is(err, run.ErrInvalidDocument):
		return CodeCorruptDocument
	default:
		return ""
	}
}

func (v *vehicle) refuseGraph(err error) {
	var incompatible *node.IncompatibleError
	if errors.As(err, &incompatible) {
		v.abandon(incompatible.Reasons, err)
	} else if code := graphCode(err); code != "" {
		v.abandon(reason(code, err), err)
	} else {
		v.later(err)
	}
}

// graphCode is what is wrong with a stored graph; empty: nothing that lasts.
func graphCode(err error) string {
	switch {
	case errors.Is(err, graph.ErrIncompatible):
		return CodeUndecodableGraph
	case errors.Is(err, backend.ErrCorruptGraph), errors.Is(err, graph.ErrDigest):
		return CodeCorruptGraph
	case errors.Is(err, backend.ErrNotFound):
		return CodeMissingGraph
	default:
		return ""
	}
}

// refusePlan is for a document that its own graph cannot go on from.
func (v *vehicle) refusePlan(err error) {
	if v.commits > 0 {
		v.broken(err) // an abandon is for what did not begin
		return
	}
	v.abandon(reason(CodeCorruptDocument, err), err)
}

func reason(code string, err error) []node.Incompatibility {
	return []node.Incompatibility{{Code: code, Message: err.Error()}}
}

// abandon hands back a run that cannot begin here, for somebody who can run it, and finishes.
// The delay carries jitter, so that what was abandoned together does not come back together.
func (v *vehicle) abandon(reasons []node.Incompatibility, why error) {
	e := v.engine
	delay := e.cfg.AbandonBackoff + jitter(e.cfg.AbandonBackoff, v.lease.Run)
	policy := claim.AbandonPolicy{ExpectedSeq: v.lease.Seq, MaxAbandons: e.cfg.MaxAbandons, RetryAfter: delay}
	codes := make([]string, 0, len(reasons))
	policy.NeverPoison = true
	for _, r := range reasons {
		if !slices.Contains(codes, r.Code) { // several nodes can lack the same
			codes = append(codes, r.Code)
		}
		if r.Code != node.CodeTimeoutTooLong {
			policy.NeverPoison = false
		}
	}
	if policy.NeverPoison {
		// A host with a higher maximum can still come.
		policy.Backoff = claim.Backoff{Base: delay, Cap: max(delay, maxAbandonBackoff)}
	}
	var done claim.Disposition
	err := e.retry(v.session.io, func() (err error) {
		done, err = e.store.AbandonClaim(v.session.io, v.lease.Run, v.lease.Token, policy)
		return err
	})
	if err != nil {
		v.say(slog.LevelError, "belay: a run could not be handed back, its claim expires", slog.String(keyError, err.Error()))
		v.finish()
		return
	}
	e.stats.abandons.Add(1)
	v.abandoned = true
	if done == claim.Rescheduled {
		v.wake = v.now().Add(delay)
	}
	v.say(slog.LevelWarn, "belay: a run cannot begin here, it is handed back",
		slog.String(keyReason, strings.Join(codes, ",")), slog.String("disposition", done.String()), slog.String(keyError, why.Error()))
	v.tellAbandoned(Abandon{
		Run: v.lease.Run, Graph: graph.Ref{ID: v.lease.GraphID, Hash: v.lease.GraphHash},
		Seq: v.lease.Seq, Reasons: reasons, Disposition: done,
	})
	v.finish()
}

// later gives back a run that trouble of the moment kept from beginning, for a little later:
// no attempt is used up. The more often in a row, the later.
func (v *vehicle) later(err error) {
	n := min(v.engine.trouble.Add(1)-1, 16)
	delay := min(troubleFirst<<n, troubleLast)
	delay += jitter(delay, v.lease.Run)
	v.say(slog.LevelWarn, "belay: a run could not begin, it is tried again later", slog.Duration("after", delay), slog.String(keyError, err.Error()))
	v.wake = v.now().Add(delay)
	v.release(claim.ReleasePolicy{After: delay, Refund: true})
}

const (
	troubleFirst = time.Second
	troubleLast  = 30 * time.Second
)

// broken gives back a run that executed but could not be committed. Its attempt counts, so that
// what fails every time is poisoned in the end.
func (v *vehicle) broken(err error) {
	delay := v.engine.cfg.AbandonBackoff + jitter(v.engine.cfg.AbandonBackoff, v.lease.Run)
	v.say(slog.LevelError, "belay: a superstep could not be committed, it is tried again later", slog.Duration("after", delay), slog.String(keyError, err.Error()))
	v.wake = v.now().Add(delay)
	v.release(claim.ReleasePolicy{After: delay})
}

// release gives the claim back and finishes. When even that fails the claim expires.
func (v *vehicle) release(policy claim.ReleasePolicy) {
	if v.sendRelease(policy) {
		v.engine.stats.releases.Add(1)
	}
	v.finish()
}

// giveUp gives back a run whose claim could not be refreshed in time, and finishes. Its attempt does not
// count, so that a host that starves and a database that was away poison nothing; it does when that has
// happened to this run Config.MaxAbandons times in a row, which may be what starves the host. It is
// due when its claim would have expired: nobody has it sooner than if this engine had died. When
// another has the claim already, nothing changes.
func (v *vehicle) giveUp(reason string) {
	beat := v.engine.beat
	policy := claim.ReleasePolicy{Refund: beat.givesUp(v), After: beat.expiresIn(v)}
	if v.sendRelease(policy) {
		v.wake = v.now().Add(policy.After)
	}
	v.lost(FenceExpiry, reason)
}

// sendRelease reports whether the backend has answered.
func (v *vehicle) sendRelease(policy claim.ReleasePolicy) bool {
	err := v.engine.release(v.session.io, &v.lease, policy)
	if err != nil {
		v.say(v.engine.outage.warning(), notReleased, slog.String(keyError, err.Error()))
	}
	return err == nil
}

// notReleased is what the log says of a claim that release could not give back.
const notReleased = "belay: a claim could not be released, it expires"

// release gives a claim back.
func (e *Engine) release(ctx context.Context, lease *claim.Lease, policy claim.ReleasePolicy) error {
	return answered(func() error {
		return e.retry(ctx, func() error { return e.store.ReleaseClaim(ctx, lease.Run, lease.Token, policy) })
	})
}
