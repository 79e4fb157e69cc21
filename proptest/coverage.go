package proptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// coverage counts what a Check did: its actions with their answers, and the corners it met.
type coverage struct {
	actions map[string]map[string]int
	corners map[string]int
}

func newCoverage() *coverage {
	return &coverage{actions: map[string]map[string]int{}, corners: map[string]int{}}
}

// count notes one action. A parenthesis of the answer, and the run that an existing one
// names, are left out.
func (c *coverage) count(action, answer string) {
	if i := strings.IndexByte(answer, '('); i > 0 {
		answer = strings.TrimSpace(answer[:i])
	}
	if strings.HasPrefix(answer, "existing ") {
		answer = "existing"
	}
	if c.actions[action] == nil {
		c.actions[action] = map[string]int{}
	}
	c.actions[action][answer]++
}

func (c *coverage) corner(name string) { c.corners[name]++ }

func (c *coverage) of(action string) (n int) {
	for _, m := range c.actions[action] {
		n += m
	}
	return n
}

func (c *coverage) total() (n int) {
	for action := range c.actions {
		n += c.of(action)
	}
	return n
}

// starved lists the actions and corners that were never met.
func (c *coverage) starved(actions, corners []string) []string {
	var starved []string
	for _, a := range actions {
		if c.of(a) == 0 {
			starved = append(starved, a)
		}
	}
	for _, name := range corners {
		if c.corners[name] == 0 {
			starved = append(starved, name)
		}
	}
	return starved
}

// String is the coverage as a table.
func (c *coverage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d actions\n", c.total())
	for _, a := range slices.Sorted(maps.Keys(c.actions)) {
		fmt.Fprintf(&b, "  %-18s %6d ", a, c.of(a))
		for _, answer := range slices.Sorted(maps.Keys(c.actions[a])) {
			fmt.Fprintf(&b, " %s %d;", answer, c.actions[a][answer])
		}
		b.WriteByte('\n')
	}
	b.WriteString("corners\n")
	for _, name := range slices.Sorted(maps.Keys(c.corners)) {
		fmt.Fprintf(&b, "  %-46s %6d\n", name, c.corners[name])
	}
	return b.String()
}
