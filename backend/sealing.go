package backend

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"runtime"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// What is sealed is stored in an envelope: the magic bytes, the length of the key's id in one
// byte, the id, and what the Sealer made. A plain payload is JSON and begins otherwise, so the two
// stand beside each other.
const (
	envelopeMagic   = "\x00belay"
	envelopeVersion = 1
	envelopeHead    = len(envelopeMagic) + 2 // the version, and the length of the key's id
)

// mostSealed bounds what a Sealer may make of a payload.
func mostSealed(plain int) int { return 2*plain + 64<<10 }

// SealDocument is what a store keeps of an encoded document: the bytes as they are without a
// Sealer. *SealingError.
func SealDocument(s Sealer, owner Owner, id string, seq int64, plain []byte) ([]byte, error) {
	if s == nil {
		return plain, nil
	}
	at := Place{Owner: owner, Run: id, Payload: DocumentPayload, Seq: seq}
	key, err := currentKey(s, at)
	if err != nil || key == "" {
		return plain, err
	}
	return seal(s, key, at, plain)
}

// sealEvent is what a store keeps of an encoded event, and beside it the digest that tells equal
// events (clause E1), nil for bytes that stay plain. *SealingError.
func sealEvent(s Sealer, owner Owner, id string, seq int64, plain []byte) (stored, digest []byte, err error) {
	if s == nil {
		return plain, nil, nil
	}
	at := Place{Owner: owner, Run: id, Payload: EventPayload, Seq: seq}
	key, err := currentKey(s, at)
	if err != nil || key == "" {
		return plain, nil, err
	}
	if stored, err = seal(s, key, at, plain); err != nil {
		return nil, nil, err
	}
	digest, err = digestOf(s, key, at, plain)
	return stored, digest, err
}

// OpenDocument is the document of a stored run: *CorruptError, *SealedError or *SealingError. The
// sequence is the stored row's.
func OpenDocument(s Sealer, owner Owner, id string, seq int64, stored []byte) (*run.Document, error) {
	at := Place{Owner: owner, Run: id, Payload: DocumentPayload, Seq: seq}
	if stored == nil {
		return nil, corrupt(at, errNoDocument)
	}
	plain, err := open(s, at, stored)
	if err != nil {
		return nil, err
	}
	d, err := run.Decode(plain)
	if err == nil && d.ID != id {
		err = fmt.Errorf("it is run %s's", d.ID)
	}
	if err != nil {
		return nil, corrupt(at, err)
	}
	return d, nil
}

// sameStoredEvent reports whether a stored event, with the digest beside it or nil, has the same
// canonical content as an encoded one (clause E1), whichever of the two is sealed and under whichever
// key: digests are compared under the stored event's key, and without one the contents.
func sameStoredEvent(s Sealer, owner Owner, id string, seq int64, stored, digest, plain []byte) (bool, error) {
	at := Place{Owner: owner, Run: id, Payload: EventPayload, Seq: seq}
	// An envelope that is damaged or newer is open's to answer.
	if key, _, sealed, err := openEnvelope(stored); err == nil && sealed && s != nil && digest != nil {
		given, err := digestOf(s, key, at, plain)
		if err != nil {
			return false, err
		}
		return subtle.ConstantTimeCompare(given, digest) == 1, nil
	}
	was, err := open(s, at, stored)
	if err != nil {
		return false, err
	}
	return bytes.Equal(was, plain), nil
}

var errNoDocument = errors.New("the run has no document")

func corrupt(at Place, err error) error {
	return &CorruptError{Run: at.Run, What: at.what(), Err: err}
}

func sealingFailed(op, key string, at Place, err error) error {
	return &SealingError{Run: at.Run, What: at.what(), Op: op, Key: key, Err: err}
}

// currentKey is the key to seal with, empty for none.
func currentKey(s Sealer, at Place) (key string, err error) {
	err = guarded(func() error { key = s.Key(); return nil })
	if err == nil && key != "" {
		err = claim.CheckID("key id", key)
	}
	if err != nil {
		return "", sealingFailed("seal", key, at, err)
	}
	return key, nil
}

func seal(s Sealer, key string, at Place, plain []byte) (stored []byte, err error) {
	var sealed []byte
	err = guarded(func() (err error) { sealed, err = s.Seal(key, at, plain); return err })
	if n := len(sealed); err == nil && (n == 0 || n > mostSealed(len(plain))) {
		err = fmt.Errorf("it made %d bytes of %d: not one, or more than twice as many and 64 KiB", n, len(plain))
	}
	if err != nil {
		return nil, sealingFailed("seal", key, at, err)
	}
	stored = make([]byte, 0, envelopeHead+len(key)+len(sealed))
	stored = append(stored, envelopeMagic...)
	stored = append(stored, envelopeVersion, byte(len(key)))
	stored = append(stored, key...)
	return append(stored, sealed...), nil
}

func digestOf(s Sealer, key string, at Place, plain []byte) (digest []byte, err error) {
	err = guarded(func() (err error) { digest, err = s.Digest(key, at, plain); return err })
	switch {
	case errors.Is(err, ErrUnknownKey):
		return nil, &SealedError{Run: at.Run, What: at.what(), Key: key, Err: err}
	case err == nil && (len(digest) == 0 || len(digest) > maxDigest):
		err = fmt.Errorf("a digest has 1 to %d bytes, not %d", maxDigest, len(digest))
	}
	if err != nil {
		return nil, sealingFailed("digest", key, at, err)
	}
	return digest, nil
}

const maxDigest = 64

// open is the payload of what is stored: what is plain, as it is.
func open(s Sealer, at Place, stored []byte) (plain []byte, err error) {
	key, sealed, isSealed, err := openEnvelope(stored)
	switch {
	case errors.Is(err, errNewerEnvelope):
		return nil, &SealedError{Run: at.Run, What: at.what(), Key: key, Err: err}
	case err != nil:
		return nil, corrupt(at, err)
	case !isSealed:
		return stored, nil
	case s == nil:
		return nil, &SealedError{Run: at.Run, What: at.what(), Key: key, Err: ErrUnknownKey}
	}
	err = guarded(func() (err error) { plain, err = s.Open(key, at, sealed); return err })
	var panicked *panicError
	var infra *InfrastructureError
	switch {
	case err == nil:
		return plain, nil
	case errors.Is(err, ErrUnknownKey):
		return nil, &SealedError{Run: at.Run, What: at.what(), Key: key, Err: err}
	case errors.As(err, &panicked), errors.As(err, &infra):
		return nil, sealingFailed("open", key, at, err)
	}
	return nil, corrupt(at, fmt.Errorf("it does not open with the key %q: %w", key, err))
}

var errNewerEnvelope = errors.New("a newer version of belay has sealed it")

// openEnvelope tells what is sealed from what is plain.
func openEnvelope(stored []byte) (key string, sealed []byte, isSealed bool, err error) {
	rest, isSealed := bytes.CutPrefix(stored, []byte(envelopeMagic))
	switch {
	case !isSealed:
		return "", nil, false, nil
	case len(rest) < 2:
		return "", nil, true, errors.New("its envelope is cut off")
	case rest[0] != envelopeVersion:
		return "", nil, true, errNewerEnvelope
	}
	n := int(rest[1])
	if rest = rest[2:]; len(rest) < n {
		return "", nil, true, errors.New("its envelope is cut off")
	}
	key = string(rest[:n])
	if err := claim.CheckID("key id", key); err != nil {
		return "", nil, true, fmt.Errorf("its envelope is damaged: %w", err)
	}
	return key, rest[n:], true, nil
}

// panicError is a panic of a Sealer. What it panicked with may hold content, and is not told
// unless the runtime made it.
type panicError struct{ text string }

func (e *panicError) Error() string { return e.text }

// guarded makes an error of a panic.
func guarded(fn func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case runtime.Error:
			err = &panicError{"it panicked: " + v.Error()}
		default:
			err = &panicError{fmt.Sprintf("it panicked with a %T", v)}
		}
	}()
	return fn()
}
