package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/seal"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, seal.KeySize) }

func sealer(t testing.TB, current string, keys map[string][]byte) backend.Sealer {
	t.Helper()
	s, err := seal.AESGCM(keys, current)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var places = []backend.Place{
	{Owner: backend.Tenantless(), Run: "a", Payload: backend.DocumentPayload, Seq: 1},
	{Owner: backend.Tenantless(), Run: "a", Payload: backend.DocumentPayload, Seq: 2},
	{Owner: backend.Tenantless(), Run: "a", Payload: backend.EventPayload, Seq: 1},
	{Owner: backend.Tenantless(), Run: "b", Payload: backend.DocumentPayload, Seq: 1},
	{Owner: backend.Tenant("a"), Run: "a", Payload: backend.DocumentPayload, Seq: 1},
	{Owner: backend.Tenant("a"), Run: "", Payload: "adocument", Seq: 1},
	{Owner: backend.Tenant("aa"), Run: "", Payload: backend.DocumentPayload, Seq: 1},
}

// TestAPlaceHasBytesOfItsOwn: no two places have the same ones.
func TestAPlaceHasBytesOfItsOwn(t *testing.T) {
	seen := make(map[string]backend.Place)
	for _, at := range places {
		if other, twice := seen[string(at.Bytes())]; twice {
			t.Errorf("%+v and %+v have the same bytes", at, other)
		}
		seen[string(at.Bytes())] = at
	}
}

// TestAESGCMOpensWhatItSealed: at its place, under its key and id, and nowhere else.
func TestAESGCMOpensWhatItSealed(t *testing.T) {
	s := sealer(t, "one", map[string][]byte{"one": key(1), "two": key(2), "same": key(1)})
	plain := []byte("the payload")
	for _, at := range places {
		sealed, err := s.Seal("one", at, plain)
		if err != nil || bytes.Contains(sealed, plain) {
			t.Fatalf("%q, %v", sealed, err)
		}
		if again, err := s.Seal("one", at, plain); err != nil || bytes.Equal(again, sealed) {
			t.Errorf("sealed twice it is the same, %v", err)
		}
		for _, other := range places {
			for _, id := range []string{"one", "two", "same"} {
				got, err := s.Open(id, other, sealed)
				switch {
				case other == at && id == "one":
					if err != nil || !bytes.Equal(got, plain) {
						t.Errorf("%q, %v", got, err)
					}
				case err == nil || errors.Is(err, backend.ErrUnknownKey):
					t.Errorf("it opens at %+v with %s, sealed at %+v with one: %v", other, id, at, err)
				}
			}
		}
		for n := range sealed {
			changed := bytes.Clone(sealed)
			changed[n] ^= 0x80
			if _, err := s.Open("one", at, changed); err == nil {
				t.Errorf("it opens with byte %d changed", n)
			}
			if _, err := s.Open("one", at, sealed[:n]); err == nil {
				t.Errorf("it opens with %d bytes", n)
			}
		}
	}
}

// TestAESGCMDigestsAreKeyedAndOfAPlace: the same for the same arguments, and for no others.
func TestAESGCMDigestsAreKeyedAndOfAPlace(t *testing.T) {
	keys := map[string][]byte{"one": key(1), "two": key(2)}
	s, other := sealer(t, "one", keys), sealer(t, "two", keys)
	seen := make(map[string]bool)
	for _, at := range places {
		for _, id := range []string{"one", "two"} {
			for _, plain := range []string{"", "a", "b"} {
				d, err := s.Digest(id, at, []byte(plain))
				again, err2 := other.Digest(id, at, []byte(plain))
				if err != nil || err2 != nil || !bytes.Equal(d, again) || seen[string(d)] {
					t.Errorf("%+v, %s, %q: %x, %x, %v, %v", at, id, plain, d, again, err, err2)
				}
				seen[string(d)] = true
			}
		}
	}
}

// TestAESGCMNamesAnUnknownKey: in each of its methods, and a key is shown by none.
func TestAESGCMNamesAnUnknownKey(t *testing.T) {
	s := sealer(t, "", map[string][]byte{"one": key('K')})
	if s.Key() != "" {
		t.Errorf("it seals with %q", s.Key())
	}
	_, sealing := s.Seal("two", places[0], nil)
	_, opening := s.Open("two", places[0], nil)
	_, digest := s.Digest("two", places[0], nil)
	for _, err := range []error{sealing, opening, digest} {
		if !errors.Is(err, backend.ErrUnknownKey) {
			t.Error(err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); bytes.Contains([]byte(text), key('K')[:4]) || len(text) > 200 {
		t.Errorf("it prints as %s", text)
	}
}

func BenchmarkSeal(b *testing.B) {
	s := sealer(b, "one", map[string][]byte{"one": key(1)})
	plain := bytes.Repeat([]byte("x"), 1024)
	for b.Loop() {
		if _, err := s.Seal("one", places[0], plain); err != nil {
			b.Fatal(err)
		}
	}
}
