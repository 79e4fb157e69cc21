package run

import (
	"context"
	"errors"
	"testing"

	"github.com/looplab/fsm"

	"github.com/belay-run/belay/checkpoint"
)

// Every status and every move, compared with a live FSM.
func TestTheLookupEqualsTheTable(t *testing.T) {
	for _, from := range Statuses() {
		reached := map[Status]bool{}
		for _, move := range Moves() {
			machine := fsm.NewFSM(string(from), table, nil)
			err := machine.Event(context.Background(), string(move))
			var stayed fsm.NoTransitionError
			want := err == nil || errors.As(err, &stayed) && stayed.Err == nil
			to, ok := Next(from, move)
			if ok != want || ok && string(to) != machine.Current() || !ok && to != "" {
				t.Errorf("%s from %s: lookup says %q, %v; the FSM is in %s with error %v", move, from, to, ok, machine.Current(), err)
			}
			if ok {
				reached[to] = true
			}
		}
		for _, to := range Statuses() {
			if CanMove(from, to) != reached[to] {
				t.Errorf("CanMove(%s, %s) is %v", from, to, CanMove(from, to))
			}
		}
	}
}

func TestTheTableKnowsEveryStatusAndMove(t *testing.T) {
	if len(Statuses()) != statusCount || len(Moves()) != moveCount {
		t.Fatalf("%d statuses and %d moves", len(Statuses()), len(Moves()))
	}
	for i, s := range Statuses() {
		if s.index() != i {
			t.Errorf("%s has index %d, and is in place %d", s, s.index(), i)
		}
	}
	named := map[Move]bool{}
	for _, desc := range table {
		if named[Move(desc.Name)] && Move(desc.Name) != MoveMigrate { // which has no target of its own
			t.Errorf("%s has two rows", desc.Name)
		}
		named[Move(desc.Name)] = true
	}
	for _, m := range Moves() {
		if !named[m] {
			t.Errorf("%s has no row", m)
		}
	}
}

func TestTerminalStatusesAbsorb(t *testing.T) {
	for _, from := range Statuses() {
		for _, move := range Moves() {
			if _, ok := Next(from, move); ok && from.Terminal() {
				t.Errorf("%s leads away from %s", move, from)
			}
		}
	}
}

func TestCreatedIsNeverStored(t *testing.T) {
	for _, s := range Statuses() {
		if s.Storable() == (s == Created) {
			t.Errorf("%s storable: %v", s, s.Storable())
		}
	}
}

func TestUnknownStatusesMoveNowhere(t *testing.T) {
	if _, ok := Next("odd", MoveAdvance); ok {
		t.Error("a move from an unknown status")
	}
	if _, ok := Next(Running, "odd"); ok {
		t.Error("an unknown move")
	}
	if CanMove("odd", Running) || CanMove(Running, "odd") || Status("odd").Terminal() || Status("").Storable() {
		t.Error("an unknown status is taken for a known one")
	}
}

func TestScheduleFitsStatus(t *testing.T) {
	fit := map[checkpoint.Kind][]Status{
		checkpoint.Retain:          {Running},
		checkpoint.ReleaseNow:      {Running},
		checkpoint.ReleaseAt:       {Running},
		checkpoint.ReleaseExternal: {Waiting},
		checkpoint.ReleaseTerminal: {Done, Failed, Cancelled},
		0:                          nil,
	}
	for kind, statuses := range fit {
		for _, s := range Statuses() {
			want := false
			for _, f := range statuses {
				want = want || f == s
			}
			if got := Fits(checkpoint.Schedule{Kind: kind}, s); got != want {
				t.Errorf("%s with %s: %v", kind, s, got)
			}
		}
	}
}
