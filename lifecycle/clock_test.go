package lifecycle

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestVirtualClockCallsWhatIsDueInOrderEachAtItsInstant(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := NewVirtualClock(start)
	var got []time.Duration
	note := func() { got = append(got, c.Now().Sub(start)) }
	c.AfterFunc(3*time.Second, note)
	c.AfterFunc(time.Second, func() {
		note()
		c.AfterFunc(time.Second, note) // made by a function that is due
	})
	stop := c.AfterFunc(2*time.Second, func() { t.Error("a stopped function was called") })
	c.AfterFunc(time.Hour, func() { t.Error("a function of the future was called") })
	if !stop() || stop() {
		t.Error("stop must report that it prevented the call, once")
	}
	c.Advance(-time.Second)
	c.Advance(5 * time.Second)
	if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("called at %v, want %v", got, want)
	}
	if !c.Now().Equal(start.Add(5 * time.Second)) {
		t.Errorf("the clock stands at %v", c.Now())
	}
}

func TestVirtualClockCallsAtOnceWhatIsDueAtOnce(t *testing.T) {
	c := NewVirtualClock(time.Time{})
	called := make(chan struct{})
	c.AfterFunc(0, func() { close(called) })
	<-called
	if c.AfterFunc(time.Second, nil)() {
		t.Error("a nil function has nothing to prevent")
	}
}

// H5: what the host's clock says of the day has no part in the instants of a claim.
func TestH5InstantsFollowTheBackendWhateverTheHostsClockSays(t *testing.T) {
	named := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	host := named.Add(10 * time.Minute)
	i := instants{named: named, since: host}
	if got := i.at(host.Add(1500 * time.Nanosecond)); !got.Equal(named.Add(time.Microsecond)) {
		t.Errorf("1.5 us later it is %v", got)
	}
	if got := i.at(host.Add(-time.Hour)); !got.Equal(named) {
		t.Errorf("a clock set back makes it %v, want it to stand at %v", got, named)
	}
}

func TestULIDsGrowAndNeverRepeatWhateverTheClockDoes(t *testing.T) {
	c := NewVirtualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	ids := NewULIDs(back{c})
	last := ""
	for range 10_000 {
		id := ids.RunID()
		if id <= last || len(id) != 26 {
			t.Fatalf("%s follows %s", id, last)
		}
		last = id
	}
}

// back is a clock that goes back with every reading.
type back struct{ *VirtualClock }

func (b back) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(-time.Millisecond)
	return b.now
}

func TestULIDsMadeAtTheSameTimeAreAllDifferent(t *testing.T) {
	ids := NewULIDs(nil)
	const each = 2000
	made := make([][]string, 8)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			for range each {
				made[i] = append(made[i], ids.CheckpointID())
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, id := range slices.Concat(made...) {
		seen[id] = true
	}
	if len(seen) != each*len(made) {
		t.Errorf("%d different ids of %d", len(seen), each*len(made))
	}
}

func TestULIDsOverflowIntoTheNextMillisecond(t *testing.T) {
	u := NewULIDs(NewVirtualClock(time.UnixMilli(1000))).(*ulids)
	first := u.next()
	for i := 6; i < len(u.last); i++ {
		u.last[i] = 0xff
	}
	if next := u.next(); next.Time() != first.Time()+1 {
		t.Errorf("after an overflow at %d ms comes %d ms", first.Time(), next.Time())
	}
}
