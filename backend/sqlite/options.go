package sqlite

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Synchronous says what a returned commit survives.
type Synchronous string

const (
	// Full: a returned commit survives the loss of power. Every group of commits is
	// flushed to the disk before anybody in it is answered.
	Full Synchronous = "full"
	// Normal: a returned commit survives the end of the process, but the last commits
	// before a loss of power or a crash of the operating system may be gone. The file
	// stays consistent. Effects of nodes whose commit is lost are repeated.
	Normal Synchronous = "normal"
)

// Options configures a store. The zero value is fine.
type Options struct {
	// Synchronous defaults to Full.
	Synchronous Synchronous
	// BusyTimeout bounds how long an operation waits for another process (or another
	// connection of this one) that is writing. Defaults to 30s.
	BusyTimeout time.Duration
	// Readers is how many operations may read at once. Defaults to 4.
	Readers int
	// MaxGroup bounds how many operations share one transaction. Defaults to 256.
	MaxGroup int
	// MutateTimeout bounds how long MutateRun's function may hold the writer, once
	// it has lost the race against other writers of its run and is called under the lock.
	// Defaults to 1s. See Store.MutateRun.
	MutateTimeout time.Duration
	// CheckpointPages is the size, in pages of 4 KiB, at which the write-ahead log is
	// copied into the file. At four times that size the store's own readers are kept out
	// for a moment, so that the log can begin anew. Defaults to 4000 (16 MiB).
	CheckpointPages int

	// CreateDirectory creates the file's directory (and its parents), mode 0700, when it
	// does not exist. Defaults to false: a missing directory is an error.
	CreateDirectory bool
	// SharedDirectory accepts a directory that others may list or enter. The file itself
	// must be closed to others all the same, and so must the directory to their writing.
	// Defaults to false: the directory's mode is 0700, or the open is refused.
	SharedDirectory bool
	// NetworkFileSystem opens the file on a network file system. It is safe only while
	// every process that uses the file is on one host. Defaults to false.
	NetworkFileSystem bool
	// Damaged opens a file whose schema is not what it should be, for Audit and Repair.
	// Defaults to false: such a file is refused.
	Damaged bool

	// Now is the store's clock. Defaults to time.Now; either way it is made non-decreasing.
	Now func() time.Time
	// NewToken makes claim tokens; it must never repeat itself. Defaults to random ULIDs.
	NewToken func() claim.Token
	// Limits bounds documents, events and values. Defaults to value.Limits{}.WithDefaults().
	Limits value.Limits
	// WriteFormat pins the format that documents are written in to an older one, 1 to
	// run.Format, while readers of an older release still live. What that format cannot say
	// is refused with *run.WriteFormatError, and so is a run that has it when it is claimed
	// with its document. Defaults to the newest.
	WriteFormat int
	// Sealer encrypts or compresses documents and events before they are stored, and opens what
	// is sealed; see docs/sealing.md. It may open what is stored under several keys. Defaults to
	// none: they are stored as they are, and what others have sealed is *backend.SealedError.
	Sealer backend.Sealer
}

func (o Options) withDefaults() Options {
	if o.Synchronous == "" {
		o.Synchronous = Full
	}
	if o.BusyTimeout == 0 {
		o.BusyTimeout = 30 * time.Second
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.MaxGroup == 0 {
		o.MaxGroup = 256
	}
	if o.MutateTimeout == 0 {
		o.MutateTimeout = time.Second
	}
	if o.CheckpointPages == 0 {
		o.CheckpointPages = 4000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewToken == nil {
		o.NewToken = func() claim.Token { return claim.Token(ulid.Make().String()) }
	}
	o.Limits = o.Limits.WithDefaults()
	return o
}

func (o Options) validate() error {
	if err := run.CheckFormat(o.WriteFormat); err != nil {
		return err
	}
	refuse := func(argument, reason string) error {
		return &backend.ArgumentError{Argument: argument, Reason: reason}
	}
	switch {
	case o.Synchronous != Full && o.Synchronous != Normal:
		return refuse("synchronous", "is neither full nor normal")
	case o.BusyTimeout < 0 || o.BusyTimeout > time.Hour:
		return refuse("busy timeout", "is not between 0 and an hour")
	case o.Readers < 0:
		return refuse("readers", "is negative")
	case o.MaxGroup < 0:
		return refuse("maximum of a group", "is negative")
	case o.MutateTimeout < 0:
		return refuse("mutate timeout", "is negative")
	case o.CheckpointPages < 0:
		return refuse("checkpoint pages", "is negative")
	}
	return nil
}
