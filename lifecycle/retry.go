package lifecycle

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/belay-run/belay/backend"
)

const (
	// retryLimit bounds how often a call is sent again that has no claim to bound it.
	retryLimit = 6
	// commitRetryLimit bounds how often a commit is sent again; the claim's own budget
	// usually ends sooner.
	commitRetryLimit = 60

	// retryWithin is when a call is not sent again any more: a backend that answers so late has tried for
	// long already, and only one of the two should.
	retryWithin = time.Second

	retryFirst = 5 * time.Millisecond
	retryLast  = time.Second
)

// retryDelay is the pause before a call is sent for the (n+2)th time.
func retryDelay(n int) time.Duration {
	if n > 16 {
		return retryLast
	}
	return min(retryFirst<<n, retryLast)
}

// retry sends a call again while its error says that this may help: a few times, and not when the
// backend was at it for long. Every call it is given is safe to repeat: a read, or a write with its ids
// fixed.
func (e *Engine) retry(ctx context.Context, call func() error) error {
	began := e.clock.Now()
	open := false
	for n := 0; ; n++ {
		err := backend.StillOpen(call(), open)
		if err == nil || n == retryLimit || backend.Classify(err) == backend.Permanent || e.clock.Now().Sub(began) >= retryWithin {
			return err
		}
		if !e.sleep(ctx, retryDelay(n)) {
			return err
		}
		open = open || backend.Classify(err) == backend.Unknown
	}
}

// jitter is a share of d below half of it, fixed for a key, so that runs that are handed
// back together do not come due together.
func jitter(d time.Duration, key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return time.Duration(float64(d) / 2 * float64(h.Sum32()) / (1 << 32)).Truncate(time.Microsecond)
}
