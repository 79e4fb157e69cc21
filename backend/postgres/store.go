package postgres

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// Store is the PostgreSQL backend. It is safe for concurrent use, and any number of
// stores, in any number of processes, may be open on one schema.
type Store struct {
	pool  *pgxpool.Pool
	owned bool // Close closes the pool
	opts  Options
	texts map[statement]string

	floor   floor
	hub     *hub
	closed  atomic.Bool
	closing sync.Once
}

var (
	_ backend.Store          = (*Store)(nil)
	_ backend.Batches        = (*Store)(nil)
	_ backend.ClaimDocuments = (*Store)(nil)
	_ backend.Wakes          = (*Store)(nil)
	_ backend.Clock          = (*Store)(nil)
	_ backend.Retention      = (*Store)(nil)
)

// New opens the store on a pool of the host's, and brings its schema up to date (see
// Options.VerifyOnly). The pool stays the host's to close, after the store. A refusal is a
// *SetupError, which says what to do, or *backend.ArgumentError for a bad option.
func New(pool *pgxpool.Pool, opts Options) (*Store, error) {
	if pool == nil {
		return nil, &backend.ArgumentError{Argument: "pool", Reason: "is nil: make one with pgxpool.New"}
	}
	return open(context.Background(), pool, opts)
}

// Open is New on a pool of the store's own, for a connection string as pgx takes it.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	pool, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

func connect(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, &SetupError{Problem: ProblemDSN, Remedy: "write it as postgres://user:password@host:port/database", Err: err}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, explained(err)
	}
	return pool, nil
}

func open(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Store, error) {
	s, err := unchecked(pool, opts)
	if err != nil {
		return nil, err
	}
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// unchecked is a store whose schema was not looked at.
func unchecked(pool *pgxpool.Pool, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	texts, err := loadStatements(opts.Schema)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, opts: opts, texts: texts}
	s.hub = newHub(s)
	return s, nil
}

// Features declares everything of X1 to X10; X8 is WithTx.
func (s *Store) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: s, ClaimDocuments: s, ClaimFilter: true, Wakes: s, Clock: s, Retention: s, Audit: s, OwnerCap: true,
	}
}

// Schema is the name of the schema that the store's tables are in.
func (s *Store) Schema() string { return s.opts.Schema }

// Close ends the subscriptions, and closes the pool if Open made it. Operations that are
// under way are finished.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.hub.close()
		if s.owned {
			s.pool.Close()
		}
	})
	return nil
}

func (s *Store) isClosed() bool { return s.closed.Load() }

// Now is the database's clock (feature X6). It never goes back within one store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if now := s.ownNow(); now != nil {
		if s.isClosed() {
			return time.Time{}, backend.ErrClosed
		}
		return s.floor.raise(*now), ctx.Err()
	}
	var now time.Time
	err := s.try(ctx, "read the clock", always, func(db session) error {
		return s.run(ctx, db, stClock, func(r pgx.Rows) error { return scan(r, &now) })
	})
	if err != nil {
		return time.Time{}, err
	}
	return s.floor.raise(now), nil
}

// floor keeps a clock from going back.
type floor struct {
	mu   sync.Mutex
	last time.Time
}

func (f *floor) raise(now time.Time) time.Time {
	now = claim.Instant(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.After(f.last) {
		f.last = now
	}
	return f.last
}

// lowest is the instant that the clock does not go behind; nil for none.
func (f *floor) lowest() *time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return instantOrNil(f.last)
}

// ownNow is what Options.Now says, and nil without it.
func (s *Store) ownNow() *time.Time {
	if s.opts.Now == nil {
		return nil
	}
	now := s.floor.raise(s.opts.Now())
	return &now
}

// or is the argument for an instant that may be left to the database's clock.
func (s *Store) or(given time.Time) *time.Time {
	if given.IsZero() {
		return s.ownNow()
	}
	return &given
}

// instantOrNil is null for no instant.
func instantOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// stored is an instant as it was read; null is none.
func stored(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// textOrNil is null for the empty text.
func textOrNil[S ~string](text S) *string {
	if text == "" {
		return nil
	}
	s := string(text)
	return &s
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// tenantOf is how an owner is stored.
func tenantOf(o backend.Owner) string {
	tenant, _ := o.Tenant()
	return tenant
}

func ownerOf(tenant string) backend.Owner {
	if tenant == "" {
		return backend.Tenantless()
	}
	return backend.Tenant(tenant)
}

// ownerArg is the owner that a scope is limited to; null for none.
func ownerArg(scope backend.Scope) *string {
	owner, ok := scope.Owner()
	if !ok {
		return nil
	}
	tenant := tenantOf(owner)
	return &tenant
}

// lockKey is the key of an advisory lock of the schema.
func (s *Store) lockKey(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("belay " + purpose + " " + s.opts.Schema))
	return int64(h.Sum64())
}
