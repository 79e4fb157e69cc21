//go:build unix

package rolling

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// effect is what a process reports that it did in the world.
type effect struct {
	Key, Run, Kind, What string
}

// entry is an effect in the ledger, and how often it was reported.
type entry struct {
	effect
	times int
}

// ledger is the world: it keeps every effect by its idempotency key.
type ledger struct {
	url string

	mu      sync.Mutex
	entries map[string]*entry
	wrong   []effect // other effects under a key that is taken
	held    map[int]chan effect
}

// pace is how long the world takes.
const pace = 15 * time.Millisecond

func newLedger(t *testing.T) *ledger {
	l := &ledger{entries: map[string]*entry{}, held: map[int]chan effect{}}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// of is where the process in a slot reports to.
func (l *ledger) of(slot int) string { return l.url + "/" + strconv.Itoa(slot) }

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e effect
	slot, err := strconv.Atoi(r.URL.Path[1:])
	body, readErr := io.ReadAll(r.Body) // to its end: only then the end of the connection is noticed
	if err != nil || readErr != nil || json.Unmarshal(body, &e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	switch known := l.entries[e.Key]; {
	case known == nil:
		l.entries[e.Key] = &entry{e, 1}
	case known.effect == e:
		known.times++
	default:
		l.wrong = append(l.wrong, e)
	}
	hold := l.held[slot]
	delete(l.held, slot)
	l.mu.Unlock()
	if hold != nil {
		hold <- e
		<-r.Context().Done() // no answer: the process is killed
		return
	}
	time.Sleep(pace)
}

// hold answers the next effect of a slot with nothing, and tells which one it is.
func (l *ledger) hold(slot int) <-chan effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan effect, 1)
	l.held[slot] = held
	return held
}

// times is how often the effect of a key was reported.
func (l *ledger) times(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return e.times
	}
	return 0
}
