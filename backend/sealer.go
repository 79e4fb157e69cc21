package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sealer turns payloads into what a store keeps of them, and back: it encrypts, compresses, or
// both. A payload is a run's document, one of its events or those of a commit, whole; docs/sealing.md
// says what stays readable beside them. Package seal has one for AES-GCM.
//
// A store calls a Sealer from many goroutines at once, and some calls while it holds a lock or a
// transaction: a Sealer is quick and does no I/O, so keys that live elsewhere are fetched before.
// Neither argument nor answer is modified by the other side afterwards. The text of an error names
// no content, since it is logged. A panic is answered as an error.
type Sealer interface {
	// Key is the id of the key to seal with from now on: it is kept, readable, beside what was
	// sealed. It may change at any time. Empty: what is written stays plain, and what was sealed
	// is opened all the same.
	Key() string
	// Seal seals a payload for its place. What comes of it is not empty, and not larger than
	// twice the payload and 64 KiB.
	Seal(key string, at Place, plain []byte) ([]byte, error)
	// Open is the payload again. An error that matches ErrUnknownKey says that this Sealer does
	// not have the key; an *InfrastructureError, that it cannot tell just now; every other one, that
	// the bytes were not sealed so for this place.
	Open(key string, at Place, sealed []byte) ([]byte, error)
	// Digest is a keyed digest of a payload at its place, the same for the same arguments,
	// always: it tells whether two events are equal (clause E1), of which the sealed bytes may
	// differ. ErrUnknownKey as for Open.
	Digest(key string, at Place, plain []byte) ([]byte, error)
}

// Payload is a kind of what is sealed.
type Payload string

// The payloads.
const (
	DocumentPayload Payload = "document"
	EventPayload    Payload = "event"
)

// Place is where a payload is stored. A Sealer binds what it seals to the place, as additional
// authenticated data, so that it does not open in another row.
type Place struct {
	Owner   Owner
	Run     string
	Payload Payload
	// Seq is the checkpoint sequence of a document, and the sequence of an event, or of the last of
	// several.
	Seq int64
}

// Bytes is the place as bytes, which no other place has.
func (p Place) Bytes() []byte {
	tenant, isTenant := p.Owner.Tenant()
	b := make([]byte, 0, 32+len(tenant)+len(p.Run))
	b = append(b, "belay 1 "...)
	if isTenant {
		b = append(b, 't')
	} else {
		b = append(b, '-')
	}
	for _, text := range []string{tenant, p.Run, string(p.Payload)} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return binary.BigEndian.AppendUint64(b, uint64(p.Seq))
}

// what names the payload in errors.
func (p Place) what() string {
	if p.Payload == EventPayload {
		return fmt.Sprintf("event %d", p.Seq)
	}
	return string(p.Payload)
}

var (
	// ErrUnknownKey is a Sealer's answer for a key that it does not have.
	ErrUnknownKey = errors.New("belay: unknown key")
	// ErrSealed is matched by *SealedError.
	ErrSealed = errors.New("belay: the content is sealed")
	// ErrSealing is matched by *SealingError.
	ErrSealing = errors.New("belay: sealing failed")
)

// SealedError is a payload that this store cannot open, since it does not have the key. The
// run is unharmed: a process that has the key goes on with it. It matches ErrSealed, and never
// ErrCorrupt or ErrNotFound.
type SealedError struct {
	Run  string
	What string // "document", "event 7", ...
	// Key is the id of the key, as it is stored.
	Key string
	Err error
}

func (e *SealedError) Error() string {
	return fmt.Sprintf("%v: run %s: %s: %v: let a process that has the key %q take it, or give this store a Sealer that has it",
		ErrSealed, e.Run, e.What, e.Err, e.Key)
}

// Is makes errors.Is(err, ErrSealed) true.
func (e *SealedError) Is(target error) bool { return target == ErrSealed }

// Unwrap is why it was not opened.
func (e *SealedError) Unwrap() error { return e.Err }

// SealingError is a failure of the Sealer itself: nothing is known about the payload. It matches
// ErrSealing.
type SealingError struct {
	Run  string
	What string // "document", "event 7", ...
	Op   string // "seal", "open", "digest"
	Key  string
	Err  error
}

func (e *SealingError) Error() string {
	return fmt.Sprintf("%v: %s with the key %q: run %s: %s: %v: look at the Sealer of this process", ErrSealing, e.Op, e.Key, e.Run, e.What, e.Err)
}

// Is makes errors.Is(err, ErrSealing) true.
func (e *SealingError) Is(target error) bool { return target == ErrSealing }

// Unwrap is the Sealer's error.
func (e *SealingError) Unwrap() error { return e.Err }
