package postgres

import (
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// maxSchema is the longest name of a schema that PostgreSQL does not cut.
const maxSchema = 63

// Options configures a store. The zero value is fine.
type Options struct {
	// Schema is where the tables are; several of belay in one database do not see each
	// other. It is created when it does not exist. Defaults to "belay".
	Schema string
	// VerifyOnly makes New and Open refuse a schema that is not up to date, instead of
	// migrating it. Defaults to false.
	VerifyOnly bool
	// SetupTimeout bounds what New and Open do, waiting for other migrators included.
	// Defaults to 30s.
	SetupTimeout time.Duration
	// RetryTimeout bounds for how long an operation is tried again after a failure that a
	// repetition may cure. Defaults to 3s.
	RetryTimeout time.Duration
	// MutateTimeout bounds how long MutateRun's function may hold the run's row, once it has
	// lost the race against other writers of its run and is called under the lock. Defaults to 1s.
	MutateTimeout time.Duration

	// PollOnly does without LISTEN: subscribers are told to look every PollInterval. It is
	// for proxies that pool transactions; without it that is found out by a self-test.
	// Defaults to false.
	PollOnly bool
	// PollInterval is how often, give or take a quarter, subscribers are told to look when
	// there is no listening connection. Defaults to 1s.
	PollInterval time.Duration
	// ListenDSN is how the listening connection reaches the server past a proxy. Defaults to
	// the way the pool does.
	ListenDSN string

	// Logger is told of lost connections and of what is not available. Defaults to
	// slog.Default().
	Logger *slog.Logger
	// Now replaces the database's clock. It is for tests.
	Now func() time.Time
	// NewToken makes claim tokens; it must never repeat itself. Defaults to random ULIDs.
	NewToken func() claim.Token
	// Limits bounds documents, events and values. Defaults to value.Limits{}.WithDefaults().
	Limits value.Limits
	// WriteFormat pins the format that documents are written in to an older one, 1 to
	// run.Format, while readers of an older release still live. What that format cannot say
	// is refused with *run.WriteFormatError, and so is a run that has it when it is claimed
	// with its document. Format 1 also writes a row for each event, where newer ones write one
	// for those of a commit. Defaults to the newest.
	WriteFormat int
	// Sealer encrypts or compresses documents and events before they are stored, and opens what
	// is sealed; see docs/sealing.md. It may open what is stored under several keys. Defaults to
	// none: they are stored as they are, and what others have sealed is *backend.SealedError.
	Sealer backend.Sealer
}

func (o Options) withDefaults() Options {
	if o.Schema == "" {
		o.Schema = "belay"
	}
	if o.SetupTimeout == 0 {
		o.SetupTimeout = 30 * time.Second
	}
	if o.RetryTimeout == 0 {
		o.RetryTimeout = 3 * time.Second
	}
	if o.MutateTimeout == 0 {
		o.MutateTimeout = time.Second
	}
	if o.PollInterval == 0 {
		o.PollInterval = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
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
	case len(o.Schema) > maxSchema:
		return refuse("schema", "is longer than 63 bytes, which PostgreSQL would cut")
	case !utf8.ValidString(o.Schema):
		return refuse("schema", "is not valid UTF-8")
	}
	if err := claim.CheckID("schema", o.Schema); err != nil {
		return err
	}
	switch {
	case o.SetupTimeout < 0:
		return refuse("setup timeout", "is negative")
	case o.RetryTimeout < 0:
		return refuse("retry timeout", "is negative")
	case o.MutateTimeout < 0:
		return refuse("mutate timeout", "is negative")
	case o.PollInterval < time.Millisecond:
		return refuse("poll interval", "is below a millisecond")
	}
	return nil
}
