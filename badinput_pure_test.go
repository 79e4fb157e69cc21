package belay_test

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/value"
)

// badPure are the bad inputs of value, claim and checkpoint.
func badPure() map[string][]bad {
	deep := strings.Repeat("[", 100_000)
	texts := func(call func(raw []byte) error) []bad {
		return []bad{
			{"nothing", func(*world) error { return call(nil) }, value.ErrInvalid, ""},
			{"half a value", func(*world) error { return call([]byte(`{"a":`)) }, value.ErrInvalid, ""},
			{"two values", func(*world) error { return call([]byte(`1 2`)) }, value.ErrInvalid, ""},
			{"invalid UTF-8", func(*world) error { return call([]byte("{\"a\": \"\xff\"}")) }, value.ErrInvalid, "/a"},
			{"NaN", func(*world) error { return call([]byte(`[NaN]`)) }, value.ErrInvalid, "/0"},
			{"a duplicate key", func(*world) error { return call([]byte(`{"a":1,"a":2}`)) }, value.ErrInvalid, "/a"},
			{"endless nesting", func(*world) error { return call([]byte(deep)) }, value.ErrInvalid, ""},
		}
	}
	reserved := bad{"a reserved key", func(*world) error { _, err := value.Parse([]byte(`{"a":{"$b":1}}`)); return err }, value.ErrInvalid, "/a/$b"}
	schema := func(text string) error { _, err := value.CompileSchema(value.Value(text), nil); return err }
	misfit := func(text string) error {
		s, err := value.CompileSchema(value.Value(`{"type":"object","properties":{"n":{"type":"integer"}}}`), nil)
		if err != nil {
			panic(err)
		}
		return s.Validate(value.Value(text))
	}
	misfits := func(text string) error {
		s, err := value.CompileSchema(value.Value(`{"properties":{"n":{"type":"integer"},"m":{"type":"string"}}}`), nil)
		if err != nil {
			return err
		}
		var all []error
		for _, m := range s.Misfits(value.Value(text)) {
			all = append(all, m)
		}
		return errors.Join(all...)
	}
	cases := map[string][]bad{
		"value.Canonical": texts(func(raw []byte) error { _, err := value.Canonical(raw); return err }),
		"value.Parse":     append(texts(func(raw []byte) error { _, err := value.Parse(raw); return err }), reserved),
		"value.Of": {
			{"a function", func(*world) error { _, err := value.Of(func() {}); return err }, value.ErrInvalid, "func"},
			{"NaN", func(*world) error { _, err := value.Of(map[string]any{"a": math.NaN()}); return err }, value.ErrInvalid, "/a"},
			{"infinity", func(*world) error { _, err := value.Of([]float64{math.Inf(1)}); return err }, value.ErrInvalid, "/0"},
			{"invalid UTF-8", func(*world) error { _, err := value.Of([]string{"\xff"}); return err }, value.ErrInvalid, "/0"},
			{"a reserved key", func(*world) error { _, err := value.Of(map[string]int{"$a": 1}); return err }, value.ErrInvalid, "/$a"},
		},
		"value.Decode": {{"half a value", func(*world) error { _, err := value.Decode(value.Value(`{"a":`)); return err }, value.ErrInvalid, ""}},
		"value.Check":  {{"one byte over the limit", func(*world) error { return value.Check("document", 11, 10) }, value.ErrTooLarge, "keep large data elsewhere"}},
		"value.CompileSchema": {
			{"nothing", func(*world) error { return schema("") }, value.ErrInvalid, ""},
			{"no schema", func(*world) error { return schema(`7`) }, value.ErrInvalid, ""},
			{"an unknown type", func(*world) error { return schema(`{"type":"strnig"}`) }, value.ErrInvalid, "type"},
			{"a reference to a file", func(*world) error { return schema(`{"$ref":"file:///etc/passwd"}`) }, value.ErrInvalid, "$ref"},
			{"a reference to nothing", func(*world) error { return schema(`{"$ref":"#/$defs/none"}`) }, value.ErrInvalid, ""},
		},
		"value.Schema.Validate": {
			{"a misfit", func(*world) error { return misfit(`{"n":"x"}`) }, value.ErrInvalid, "/n"},
			{"half a value", func(*world) error { return misfit(`{"n":`) }, value.ErrInvalid, ""},
			{"nothing", func(*world) error { return misfit("") }, value.ErrInvalid, ""},
		},
		"value.Schema.Misfits": {
			{"two misfits", func(*world) error { return misfits(`{"n":"x","m":1}`) }, value.ErrInvalid, "/n"},
			{"half a value", func(*world) error { return misfits(`{"n":`) }, value.ErrInvalid, ""},
			{"nothing", func(*world) error { return misfits("") }, value.ErrInvalid, ""},
		},

		"claim.CheckID": ids("run id", claim.ErrInvalidArgument, func(_ *world, id string) error { return claim.CheckID("run id", id) }),
		"claim.Tenant":  ids("tenant", claim.ErrInvalidArgument, func(_ *world, id string) error { return claim.Tenant(id).Validate() }),
		"claim.Owner.Validate": {
			{"the zero owner", func(*world) error { return claim.Owner{}.Validate() }, claim.ErrInvalidArgument, "owner"},
		},
		"claim.Policy.Validate":        badPolicies(func(_ *world, p claim.Policy) error { return p.Validate() }),
		"claim.ReleasePolicy.Validate": badReleases(func(_ *world, p claim.ReleasePolicy) error { return p.Validate() }),
		"claim.AbandonPolicy.Validate": badAbandons(func(_ *world, p claim.AbandonPolicy) error { return p.Validate() }),
		"claim.State.Refresh": {
			{"another token", func(*world) error {
				_, err := claim.State{Token: "a", ClaimedAt: epoch}.Refresh("b", epoch)
				return err
			}, claim.ErrClaimLost, ""},
			{"no token", func(*world) error { _, err := claim.State{Wake: epoch}.Refresh("", epoch); return err }, claim.ErrClaimLost, ""},
		},
		"claim.State.Valid": {
			{"negative counters", func(*world) error { return claim.State{Wake: epoch, Attempts: -1}.Valid(true) }, claim.ErrInvalidState, "negative"},
			{"wake and claim", func(*world) error { return claim.State{Wake: epoch, Token: "a", ClaimedAt: epoch}.Valid(true) }, claim.ErrInvalidState, "exactly one"},
			{"a wake of a finished run", func(*world) error { return claim.State{Wake: epoch}.Valid(false) }, claim.ErrInvalidState, "not running"},
		},

		"checkpoint.Fence.Check": {
			{"another token", func(*world) error {
				return checkpoint.Fence{Token: "a", Seq: 1}.Check(checkpoint.Fence{Token: "b", Seq: 1})
			}, checkpoint.ErrStaleFence, ""},
			{"another sequence", func(*world) error {
				return checkpoint.Fence{Token: "a", Seq: 2}.Check(checkpoint.Fence{Token: "a", Seq: 1})
			}, checkpoint.ErrStaleFence, ""},
			{"no claim", func(*world) error { return checkpoint.Fence{Seq: 1}.Check(checkpoint.Fence{Seq: 1}) }, checkpoint.ErrStaleFence, ""},
		},
	}
	return cases
}

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// badPolicies are claim policies that nothing may be claimed by.
func badPolicies(call func(w *world, p claim.Policy) error) []bad {
	good := claim.Policy{Limit: 1, MaxAttempts: 1, TTL: time.Minute}
	with := func(name, says string, spoil func(*claim.Policy)) bad {
		p := good
		spoil(&p)
		return bad{name, func(w *world) error { return call(w, p) }, backend.ErrInvalidArgument, says}
	}
	return []bad{
		with("a negative TTL", "ttl", func(p *claim.Policy) { p.TTL = -1 }),
		with("a limit of 0", "limit", func(p *claim.Policy) { p.Limit = 0 }),
		with("no attempts", "max attempts", func(p *claim.Policy) { p.MaxAttempts = 0 }),
		with("an unknown class", "class", func(p *claim.Policy) { p.Prefer = 9 }),
		with("an unknown fairness", "fairness", func(p *claim.Policy) { p.Fairness = 9 }),
		with("a negative cap", "cap", func(p *claim.Policy) { p.OwnerCap = -1 }),
		with("a filter without a graph id", "filter graph", func(p *claim.Policy) { p.Filter.Graphs = []claim.GraphFilter{{}} }),
		with("a filter with an empty run id", "filter run", func(p *claim.Policy) { p.Filter.Runs = []string{""} }),
	}
}

func badReleases(call func(w *world, p claim.ReleasePolicy) error) []bad {
	return []bad{{"a negative delay", func(w *world) error { return call(w, claim.ReleasePolicy{After: -1}) }, backend.ErrInvalidArgument, "delay"}}
}

func badAbandons(call func(w *world, p claim.AbandonPolicy) error) []bad {
	good := claim.AbandonPolicy{MaxAbandons: 1, ExpectedSeq: 1, Now: epoch}
	with := func(name, says string, spoil func(*claim.AbandonPolicy)) bad {
		p := good
		spoil(&p)
		return bad{name, func(w *world) error { return call(w, p) }, backend.ErrInvalidArgument, says}
	}
	return []bad{
		with("no abandons", "max abandons", func(p *claim.AbandonPolicy) { p.MaxAbandons = 0 }),
		with("a retry before now", "retry-at", func(p *claim.AbandonPolicy) { p.RetryAt = epoch.Add(-time.Second) }),
		with("a negative delay", "retry-after", func(p *claim.AbandonPolicy) { p.RetryAfter = -1 }),
		with("a backoff without a cap", "backoff", func(p *claim.AbandonPolicy) { p.Backoff.Base = time.Second }),
		with("a backoff above its cap", "backoff", func(p *claim.AbandonPolicy) { p.Backoff = claim.Backoff{Base: 2, Cap: 1} }),
	}
}
