package run

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// firstAttempt is the id of a task, run:step:node, which is its idempotency key too, and that of
// its first attempt, which begins with it.
func firstAttempt(run string, step int64, node string) (task, attempt string) {
	attempt = run + ":" + strconv.FormatInt(step, 10) + ":" + node + ":1"
	return attempt[:len(attempt)-len(":1")], attempt
}

// isTaskID compares without building the id.
func isTaskID(id, run string, step int64, node string) bool {
	rest, ok := strings.CutPrefix(id, run+":")
	if !ok {
		return false
	}
	rest, ok = strings.CutSuffix(rest, ":"+node)
	return ok && rest == strconv.FormatInt(step, 10)
}

// attemptID is task:attempt.
func attemptID(task string, attempt int) string {
	return task + ":" + strconv.Itoa(attempt)
}

// inputHash is the SHA-256, in lower-case hex, of the JSON object of a snapshot:
// what the node read, by its own names in order.
func inputHash(snapshot []Channel) string {
	var room [64]byte // names are short, and values are not copied
	h := sha256.New()
	b := append(room[:0], '{')
	for i := range snapshot {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, snapshot[i].Name)
		b = append(b, ':')
		h.Write(b)
		h.Write(snapshot[i].Value)
		b = b[:0]
	}
	h.Write(append(b, '}'))
	return hex.EncodeToString(h.Sum(b[:0]))
}
