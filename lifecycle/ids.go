package lifecycle

import (
	"bufio"
	"crypto/rand"
	"io"
	"sync"

	"github.com/oklog/ulid/v2"
)

// IDs makes identifiers; none is ever made twice. It must be safe for concurrent use.
type IDs interface {
	RunID() string
	CheckpointID() string
}

// NewULIDs makes ULIDs that grow in the order they are made in, even while the clock stands
// or goes back, from the clock's milliseconds and cryptographic randomness. A nil clock
// is the system's.
func NewULIDs(clock Clock) IDs {
	if isNil(clock) {
		clock = SystemClock()
	}
	return &ulids{clock: clock, random: bufio.NewReader(rand.Reader)}
}

type ulids struct {
	clock  Clock
	mu     sync.Mutex
	random io.Reader
	last   ulid.ULID
}

func (u *ulids) RunID() string        { return u.next().String() }
func (u *ulids) CheckpointID() string { return u.next().String() }

func (u *ulids) next() ulid.ULID {
	now := u.clock.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	ms := max(uint64(max(now.UnixMilli(), 0)), u.last.Time())
	if ms == u.last.Time() {
		if u.increment() {
			return u.last
		}
		ms++ // the random part overflowed: borrow the next millisecond
	}
	var id ulid.ULID
	_ = id.SetTime(min(ms, ulid.MaxTime()))
	_, _ = io.ReadFull(u.random, id[6:]) // crypto/rand never fails
	id[6] &= 0x7f                        // leaves room to count up within the millisecond
	u.last = id
	return id
}

// increment adds one to the random part; false when it overflowed.
func (u *ulids) increment() bool {
	for i := len(u.last) - 1; i >= 6; i-- {
		u.last[i]++
		if u.last[i] != 0 {
			return true
		}
	}
	return false
}
