package memory

import (
	"bufio"
	"crypto/rand"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/claim"
)

// tokens issues claim tokens, one at a time.
type tokens struct {
	mu   sync.Mutex
	make func() claim.Token
}

func (t *tokens) next() claim.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.make()
}

// randomTokens makes ULIDs with 80 random bits each, from the system's secure source
// read in larger pieces.
func randomTokens() func() claim.Token {
	entropy := bufio.NewReaderSize(rand.Reader, 1000)
	return func() claim.Token {
		// The source never fails: the process ends before crypto/rand does.
		return claim.Token(ulid.MustNew(ulid.Timestamp(time.Now()), entropy).String())
	}
}
