package run

import (
	"slices"

	"github.com/looplab/fsm"

	"github.com/belay-run/belay/checkpoint"
)

// Status of a run.
type Status string

// The statuses. Created is never stored; Done, Failed and Cancelled are terminal.
const (
	Created   Status = "created"
	Running   Status = "running"
	Waiting   Status = "waiting"
	Done      Status = "done"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Statuses lists every status, in the order above.
func Statuses() []Status {
	return []Status{Created, Running, Waiting, Done, Failed, Cancelled}
}

// Terminal reports whether nothing can change the run any more.
func (s Status) Terminal() bool { return s == Done || s == Failed || s == Cancelled }

// Storable reports whether a document may be stored with this status.
func (s Status) Storable() bool { return s == Running || s == Waiting || s.Terminal() }

// Move names a transition of the status table.
type Move string

// The moves.
const (
	MoveInitialize Move = "initialize"
	MoveAdvance    Move = "advance"
	MoveWait       Move = "wait"
	MoveComplete   Move = "complete"
	MoveFail       Move = "fail"
	MoveResume     Move = "resume"
	MoveCancel     Move = "cancel"
	MoveMigrate    Move = "migrate"
)

// Moves lists every move, in the order above.
func Moves() []Move {
	return []Move{MoveInitialize, MoveAdvance, MoveWait, MoveComplete, MoveFail, MoveResume, MoveCancel, MoveMigrate}
}

//go:generate go test -run ^TestThePageOfTheMachineIsCurrent$ . -rewrite

// The status table. Terminal statuses have no row, so they absorb. A migration leaves the
// status as it is; it is the only move of a waiting run that stays waiting.
var table = fsm.Events{
	row(MoveInitialize, Running, Created),
	row(MoveAdvance, Running, Running),
	row(MoveWait, Waiting, Running),
	row(MoveComplete, Done, Running),
	row(MoveFail, Failed, Running),
	row(MoveResume, Running, Waiting),
	row(MoveCancel, Cancelled, Running, Waiting),
	row(MoveMigrate, Running, Running),
	row(MoveMigrate, Waiting, Waiting),
}

func row(m Move, to Status, from ...Status) fsm.EventDesc {
	desc := fsm.EventDesc{Name: string(m), Dst: string(to)}
	for _, s := range from {
		desc.Src = append(desc.Src, string(s))
	}
	return desc
}

const (
	statusCount = 6
	moveCount   = 8
)

// moves is the table as the machine executes it: an FSM per document would cost
// microseconds and is not safe to share. Both are compared exhaustively in a test.
var moves = lookup(table)

type lookupTable struct {
	next  [statusCount][moveCount]Status // "" where there is no transition
	leads [statusCount][statusCount]bool // some move leads from one to the other
}

func lookup(table fsm.Events) (t lookupTable) {
	for _, desc := range table {
		m := slices.Index(Moves(), Move(desc.Name))
		for _, src := range desc.Src {
			from := Status(src).index()
			t.next[from][m] = Status(desc.Dst)
			t.leads[from][Status(desc.Dst).index()] = true
		}
	}
	return t
}

// index is the status's place in Statuses, -1 for an unknown one.
func (s Status) index() int {
	switch s {
	case Created:
		return 0
	case Running:
		return 1
	case Waiting:
		return 2
	case Done:
		return 3
	case Failed:
		return 4
	case Cancelled:
		return 5
	}
	return -1
}

// CanMove reports whether some move of the table leads from one status to the other.
func CanMove(from, to Status) bool {
	f, t := from.index(), to.index()
	return f >= 0 && t >= 0 && moves.leads[f][t]
}

// Next is where a move leads from a status; ok is false where the table has no
// such transition.
func Next(from Status, move Move) (to Status, ok bool) {
	f, m := from.index(), slices.Index(Moves(), move)
	if f < 0 || m < 0 {
		return "", false
	}
	to = moves.next[f][m]
	return to, to != ""
}

// Fits reports whether a schedule suits a status: retain, release-now and
// release-at a running run, release-external a waiting one, release-terminal a
// terminal one.
func Fits(s checkpoint.Schedule, status Status) bool {
	switch s.Kind {
	case checkpoint.Retain, checkpoint.ReleaseNow, checkpoint.ReleaseAt:
		return status == Running
	case checkpoint.ReleaseExternal:
		return status == Waiting
	case checkpoint.ReleaseTerminal:
		return status.Terminal()
	}
	return false
}
