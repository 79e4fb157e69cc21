package run

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/belay-run/belay/graph"
)

// backoff is the delay, in microseconds, after the failed attempt of that number
// (from 1): initial, multiplied attempt-1 times by factor thousandths, each time
// rounded down and saturating, at most cap; less a jitter of up to a quarter that
// the attempt's id decides. All of it is integer arithmetic, so that every machine
// of a mixed fleet finds the same.
func backoff(b graph.Backoff, attempt int, attemptID string) int64 {
	delay := time.Duration(b.Initial).Microseconds()
	limit := time.Duration(b.Cap).Microseconds()
	for n := 1; n < attempt && delay < limit; n++ {
		next := scale(delay, uint64(b.Factor))
		if next == delay {
			break
		}
		delay = next
	}
	delay = min(delay, limit)
	return delay - jitter(delay, attemptID)
}

// scale is delay * thousandths / 1000, saturating.
func scale(delay int64, thousandths uint64) int64 {
	hi, lo := bits.Mul64(uint64(delay), thousandths)
	if hi >= 1000 {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, 1000)
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// jitter is the first eight bytes of the attempt id's SHA-256, as a big-endian
// number, modulo a quarter of the delay plus one.
func jitter(delay int64, attemptID string) int64 {
	sum := sha256.Sum256([]byte(attemptID))
	return int64(binary.BigEndian.Uint64(sum[:8]) % uint64(delay/4+1))
}
