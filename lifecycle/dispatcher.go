package lifecycle

import (
	"log/slog"
	"slices"
	"strconv"
	"time"
)

// dispatcher says when an open session claims: when a poll is due, at once for what was started
// or released here, when a run that was parked here comes due before the next poll, and when the backend
// announces that something may be due. It costs one statement a poll interval while nothing
// happens.
type dispatcher struct {
	session *session
	woken   event // the pause before the next look may have become shorter

	// Under the session's lock. Instants are the local clock's.
	looked    time.Time     // when a claim was last made, or wanted
	interval  time.Duration // until the next poll, jittered
	polls     int64
	seed      string
	empty     int         // claims in a row that found nothing
	announced bool        // by the backend, since the last look
	soon      []time.Time // when runs that were parked here come due, ascending, before the next poll
	trouble   int         // claims in a row that failed
	lastError error
	rested    time.Time // no claim before
	found     time.Time // when the backend last answered
}

const (
	// announcedFirst is the pause after a claim that found nothing before an announcement makes
	// another: most announce what somebody else takes. It doubles with every such claim, to a
	// tenth of the poll interval.
	announcedFirst = time.Millisecond
	// soonSteps is how many instants a poll interval has at which parked runs are looked for:
	// what comes due between two of them is claimed together.
	soonSteps = 20
	// refusedFirst and refusedLast bound the pause after a claim that failed.
	refusedFirst = 100 * time.Millisecond
	refusedLast  = 30 * time.Second
)

func newDispatcher(s *session) *dispatcher {
	e := s.engine
	d := &dispatcher{session: s, woken: e.scheduler.NewEvent(), seed: e.ids.CheckpointID(), looked: e.clock.Now()}
	d.interval = d.jittered()
	return d
}

// jittered is a poll interval, up to a quarter longer, so that engines do not poll together.
func (d *dispatcher) jittered() time.Duration {
	d.polls++
	interval := d.session.engine.cfg.PollInterval
	return interval + jitter(interval/2, d.seed+strconv.FormatInt(d.polls, 10))
}

// run claims until the session is shut down or has failed.
func (d *dispatcher) run() {
	s := d.session
	s.listen(d)
	for {
		if v := s.next(); v != nil {
			s.mu.Lock()
			s.call(v)
			s.mu.Unlock()
		}
		pause, goesOn := d.pause()
		if !goesOn || !s.engine.wait(s.ctx, pause, d.woken) {
			return
		}
		d.look()
	}
}

// listen takes the backend's announcements, if it makes any.
func (s *session) listen(d *dispatcher) {
	e := s.engine
	if e.features.Wakes == nil {
		return
	}
	announced, err := e.subscribe(s.ctx)
	if err != nil {
		e.log.LogAttrs(s.io, slog.LevelWarn, "belay: the backend announces nothing here, runs are found by polling", slog.String(keyError, err.Error()))
		return
	}
	e.scheduler.Each(announced, func() {
		s.mu.Lock()
		d.announced = true
		idle := s.idle()
		s.mu.Unlock()
		if idle {
			d.woken.Set()
		}
	})
}

// idle reports whether a claim could be made now. The caller holds the lock.
func (s *session) idle() bool {
	return !s.claiming && s.active < s.engine.cfg.Concurrency
}

// pause is how long there is nothing to look for. It reports false when the session has failed.
func (d *dispatcher) pause() (time.Duration, bool) {
	d.session.mu.Lock()
	defer d.session.mu.Unlock()
	return d.next().Sub(d.session.engine.clock.Now()), d.session.failure == nil
}

// next is when there is something to look for. The caller holds the lock.
func (d *dispatcher) next() time.Time {
	at := d.looked.Add(d.interval)
	earlier := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if d.announced && d.session.idle() {
		gap := time.Duration(0)
		if d.empty > 0 {
			gap = min(announcedFirst<<min(d.empty-1, 16), d.session.engine.cfg.PollInterval/10)
		}
		earlier(d.looked.Add(gap))
	}
	if len(d.soon) > 0 {
		earlier(d.soon[0])
	}
	if d.session.again && d.session.idle() && !d.session.engine.paused() {
		earlier(d.rested)
	}
	if at.Before(d.rested) {
		at = d.rested
	}
	return at
}

// look notes, when the time has come, that something may be due.
func (d *dispatcher) look() {
	d.session.mu.Lock()
	defer d.session.mu.Unlock()
	now := d.session.engine.clock.Now()
	if !d.next().After(now) {
		d.wants(now)
	}
}

func (d *dispatcher) wants(now time.Time) {
	d.session.again = true
	d.announced = false
	d.looked, d.interval = now, d.jittered()
	d.soon = slices.DeleteFunc(d.soon, func(t time.Time) bool { return !t.After(now) })
}

// mayClaim reports whether claiming is neither paused nor resting after a failure. The caller
// holds the lock.
func (d *dispatcher) mayClaim() bool {
	e := d.session.engine
	return !e.paused() && !d.rested.After(e.clock.Now())
}

// claimed takes note of what a claim found. The caller holds the lock.
func (d *dispatcher) claimed(n int) {
	now := d.session.engine.clock.Now()
	d.looked, d.interval = now, d.jittered()
	d.found, d.trouble, d.rested, d.lastError = now, 0, time.Time{}, nil
	d.session.engine.outage.over(d.session.io)
	d.empty++
	if n > 0 {
		d.empty = 0
	}
	if d.announced {
		d.woken.Set()
	}
	d.soon = slices.DeleteFunc(d.soon, func(t time.Time) bool { return !t.After(now) })
}

// refused rests for a while after a claim that failed, longer each time. The caller holds the lock.
func (d *dispatcher) refused(err error) {
	e := d.session.engine
	pause := min(refusedFirst<<min(d.trouble, 16), refusedLast)
	pause += jitter(pause, d.seed)
	d.trouble++
	d.lastError = err
	now := e.clock.Now()
	d.looked, d.rested = now, now.Add(pause)
	e.outage.failed(d.session.io, err, pause)
	d.woken.Set()
}

// freed takes note of a run that is not driven here any more, and reports whether a claim for its
// slot may find something. The caller holds the lock.
func (d *dispatcher) freed(v *vehicle) bool {
	s := d.session
	if !s.short || s.engine.cfg.OwnerCap > 0 {
		return true // there was more than there were slots, or than an owner may hold
	}
	if d.announced {
		d.woken.Set()
	}
	if v.wake.IsZero() {
		return false
	}
	after := v.wake.Sub(v.now())
	if after <= 0 {
		return true
	}
	d.parked(after)
	return false
}

// parked makes sure that a run which comes due before the next poll is claimed then. The caller holds
// the lock.
func (d *dispatcher) parked(after time.Duration) {
	e := d.session.engine
	if after >= e.cfg.PollInterval {
		return
	}
	step := max(e.cfg.PollInterval/soonSteps, time.Microsecond)
	at := e.clock.Now().Add(after)
	if rest := at.Sub(d.looked) % step; rest != 0 {
		at = at.Add(step - rest)
	}
	if i, there := slices.BinarySearchFunc(d.soon, at, time.Time.Compare); !there {
		d.soon = slices.Insert(d.soon, i, at)
		if i == 0 {
			d.woken.Set()
		}
	}
}

// wake claims at once, for what became due here.
func (s *session) wake() {
	s.mu.Lock()
	s.again = true
	idle := s.idle()
	s.mu.Unlock()
	if idle {
		s.dispatcher.woken.Set()
	}
}
