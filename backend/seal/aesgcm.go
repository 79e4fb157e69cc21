// Package seal has a backend.Sealer that encrypts: AES-256-GCM with keys that rotate, from
// nothing but the standard library. docs/sealing.md says how a fleet comes to use it.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// KeySize is the length of a key, in bytes.
const KeySize = 32

// What a key is used for: a key of its own is derived for each purpose, and for what is sealed
// another one for each run.
const (
	purposeSeal   = "belay seal: aes-256-gcm 1: "
	purposeDigest = "belay seal: hmac-sha-256 1"
)

// AESGCM is a Sealer that encrypts with AES-256-GCM. What it seals is bound to its place as
// additional authenticated data. Keys are KeySize random bytes each, under ids that are stored
// readable; they are copied.
//
// The current key is the one to seal with. The others only open, which is what keys are for that
// were current before, and those that are to be current next. With no current key ("") what is
// written stays plain. A key must not be taken away while anything is stored under it.
//
// Each run has a key of its own, derived by HKDF, so that the random nonces of one key never get
// near the bound where they might repeat. *backend.ArgumentError for keys that are none.
func AESGCM(keys map[string][]byte, current string) (backend.Sealer, error) {
	s := &aesGCM{current: current, keys: make(map[string]derived, len(keys))}
	for id, key := range keys {
		if err := claim.CheckID("key id", id); err != nil {
			return nil, err
		}
		if len(key) != KeySize {
			return nil, &backend.ArgumentError{Argument: "key", Reason: fmt.Sprintf("%q has %d bytes: use %d random ones", id, len(key), KeySize)}
		}
		root, err := hkdf.Extract(sha256.New, key, nil)
		if err != nil {
			return nil, err
		}
		digest, err := hkdf.Expand(sha256.New, root, purposeDigest, KeySize)
		if err != nil {
			return nil, err
		}
		s.keys[id] = derived{root: root, digest: digest}
	}
	if _, known := s.keys[current]; current != "" && !known {
		return nil, &backend.ArgumentError{Argument: "current key", Reason: fmt.Sprintf("%q is not among the keys", current)}
	}
	return s, nil
}

type aesGCM struct {
	current string
	keys    map[string]derived
}

// derived is what is used of a key.
type derived struct{ root, digest []byte }

// String keeps keys out of logs.
func (*aesGCM) String() string { return "AES-256-GCM" }

// GoString keeps keys out of logs.
func (s *aesGCM) GoString() string { return s.String() }

func (s *aesGCM) Key() string { return s.current }

func (s *aesGCM) Seal(key string, at backend.Place, plain []byte) ([]byte, error) {
	aead, err := s.aead(key, at)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, plain, data(key, at)), nil
}

func (s *aesGCM) Open(key string, at backend.Place, sealed []byte) ([]byte, error) {
	aead, err := s.aead(key, at)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nil, sealed, data(key, at))
}

func (s *aesGCM) Digest(key string, at backend.Place, plain []byte) ([]byte, error) {
	k, known := s.keys[key]
	if !known {
		return nil, backend.ErrUnknownKey
	}
	h := hmac.New(sha256.New, k.digest)
	h.Write(at.Bytes())
	h.Write(plain)
	return h.Sum(nil), nil
}

// aead is the cipher of one run. It draws nonces by itself, and keeps them before what it seals.
func (s *aesGCM) aead(key string, at backend.Place) (cipher.AEAD, error) {
	k, known := s.keys[key]
	if !known {
		return nil, backend.ErrUnknownKey
	}
	ofRun, err := hkdf.Expand(sha256.New, k.root, purposeSeal+string(backend.Place{Owner: at.Owner, Run: at.Run}.Bytes()), KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(ofRun)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// data is what is authenticated besides: where it stands, and by which key's id it is found.
func data(key string, at backend.Place) []byte { return append(at.Bytes(), key...) }
