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

// retry sends a call again, with a bound, while its error says that this may help. Every
// call it is given is safe to repeat: a read, or a write with its ids fixed.
func (e *Engine) retry(ctx context.Context, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		if err == nil || n == retryLimit || backend.Classify(err) == backend.Permanent {
			return err
		}
		if !e.sleep(ctx, retryDelay(n)) {
			return err
		}
	}
}

// jitter is a share of d below half of it, fixed for a key, so that runs that are handed
// back together do not come due together.
func jitter(d time.Duration, key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return time.Duration(float64(d) / 2 * float64(h.Sum32()) / (1 << 32)).Truncate(time.Microsecond)
}
