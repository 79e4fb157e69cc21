package proptest

import (
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// unheardToken is the token of a claim whose answer nobody heard.
const unheardToken claim.Token = "of a claim without an answer"

// What a troubled call may answer beside what it must: that nobody knows, or that nothing happened.
const (
	noAnswer = "no answer"
	noEffect = "no effect"
)

// plight is what a Check knows of the trouble that it makes.
type plight struct {
	*Trouble
	armed  bool
	before int // the count when it was made
	struck bool
	// resend sends the last call of unknown outcome again; nil when there is none.
	resend func(m *machine) (got, want, clause string)
}

// strike makes trouble for the next call, now and then.
func (m *machine) strike(a action) {
	m.trouble.armed, m.trouble.struck = false, false
	if m.trouble.Trouble == nil || m.trouble.Settle == nil || !a.troubled || !m.oneIn(3, "trouble") {
		return
	}
	m.trouble.armed, m.trouble.before = true, m.trouble.Count()
	m.trouble.Make(func(n int) int { return even(n).Draw(m.rt, "kind of trouble") })
}

// met reports whether the call met trouble, once everything beneath the store has come to rest.
func (m *machine) met() bool {
	if m.trouble.armed {
		m.trouble.armed = false
		m.trouble.Settle()
		m.trouble.struck = m.trouble.Count() != m.trouble.before
	}
	return m.trouble.struck
}

// expects moves the model by a call about one run, and is what was answered and what had to be.
// Without trouble there is one right answer. A call that met trouble may also have been sent again
// by the store itself, the first sending having taken effect; have failed without any effect; or be of
// unknown outcome, and then the store shows which of the two it was.
func (m *machine) expects(id, answered string, err error, call func(*model) string) (got, want string) {
	m.rt.Helper()
	if !m.met() {
		return answered, call(m.model)
	}
	before, after := m.model, m.model.clone()
	want = call(after)
	nature := backend.Classify(err)
	switch {
	case answered == want:
		m.model = after
		m.cov.corner("trouble that nobody noticed")
		return answered, want
	case err != nil && nature == backend.Transient:
		m.cov.corner("trouble without effect")
		return noEffect, noEffect
	case err != nil && nature == backend.Unknown:
		m.cov.corner("an unknown outcome")
		if m.shows(id, after) {
			m.model = after
			m.judge.excuse(before, after)
		}
		return noAnswer, noAnswer
	}
	twice := after.clone()
	if again := call(twice); answered == again {
		m.model = twice
		m.judge.excuse(before, twice)
		m.cov.corner("trouble after which the store sent again")
		return answered, again
	}
	m.model = after
	return answered, want
}

// shows reports whether the store shows of a run what a model does.
func (m *machine) shows(id string, o *model) bool {
	m.rt.Helper()
	is, must := m.look(), o.picture()
	return cmp.Equal(must.Infos[id], is.Infos[id], comparison) && cmp.Equal(must.Events[id], is.Events[id], comparison)
}

// unheardClaim moves the model by a claim that met trouble and was not answered: whatever it took, it
// took by the rules.
func (m *machine) unheardClaim(err error, p claim.Policy, due []modelDue) (got, want, clause string) {
	m.rt.Helper()
	if backend.Classify(err) == backend.Transient {
		m.cov.corner("trouble without effect")
		return noEffect, noEffect, "K1"
	}
	m.cov.corner("an unknown outcome")
	is, before := m.look(), m.model.clone()
	var taken []string
	for _, d := range due {
		if columnsOf(is.Infos[d.id]) != columnsOf(m.before.Infos[d.id]) {
			taken = append(taken, d.id)
		}
	}
	slices.Sort(taken)
	if len(taken) == 0 {
		return noAnswer, noAnswer, "K1"
	}
	if misfit := m.model.misfit(due, p, taken); misfit != "" {
		return noAnswer + ", and " + misfit, "another selection", "K2"
	}
	for _, id := range taken {
		if !m.model.launch(id, p) {
			m.model.runs[id].token = unheardToken
		}
	}
	m.judge.excuse(before, m.model)
	return noAnswer, noAnswer, "K3"
}

// sentAgain notes the call that is to be sent again because nobody knows what became of it.
func (m *machine) sentAgain(got string, send func(m *machine) (got, want, clause string)) {
	if got == noAnswer {
		m.trouble.resend = send
	}
}
