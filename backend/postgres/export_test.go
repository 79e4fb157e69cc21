package postgres

import (
	"fmt"
	"strings"

	"github.com/belay-run/belay/backend"
)

// Replace changes the text of one of the store's statements, in which from must be found
// exactly once.
func (s *Store) Replace(name, from, to string) error {
	text, ok := s.texts[statement(name)]
	if n := strings.Count(text, from); !ok || n != 1 {
		return fmt.Errorf("the statement %s holds %q %d times; it must hold it once", name, from, n)
	}
	s.texts[statement(name)] = strings.Replace(text, from, to, 1)
	return nil
}

// Silence keeps the store from sending notifications.
func (s *Store) Silence() { s.hub.sending.Do(func() {}) }

// Nature is what may be done about what the driver answered.
func Nature(err error) backend.Nature { return nature(err) }
