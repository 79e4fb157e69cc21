package backend

import (
	"strings"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// MaxLimit is the largest page.
const MaxLimit = 1000

// Info is a run with its operational state.
type Info struct {
	Document     *run.Document
	Owner        Owner
	Wake         time.Time // zero: none
	ClaimedAt    time.Time // zero: no claim
	Attempts     int
	Abandons     int
	Poison       claim.Poison // zero: not poisoned
	Type         checkpoint.Type
	CheckpointID checkpoint.ID
}

// Summary is one run in a list.
type Summary struct {
	Run        string
	Owner      Owner
	Graph      graph.Ref
	Status     run.Status
	Seq        int64
	StartedAt  time.Time
	UpdatedAt  time.Time
	FinishedAt time.Time
	Wake       time.Time
	ClaimedAt  time.Time
	Attempts   int
	Abandons   int
	Poison     claim.Poison
}

// Query selects runs. Zero filters admit everything.
type Query struct {
	GraphID   string
	GraphHash string
	Statuses  []run.Status
	Before    Cursor // exclusive; zero: from the newest
	Limit     int    // 1 to MaxLimit
}

// Cursor is a position in a list of runs, by (started-at, id) descending. An empty Run
// stands before every run that started at StartedAt.
type Cursor struct {
	StartedAt time.Time
	Run       string
}

// MarshalText is the cursor as one word, for a URL or a command line: the instant, a comma, the
// run. The zero cursor is the empty text.
func (c Cursor) MarshalText() ([]byte, error) {
	if c == (Cursor{}) {
		return nil, nil
	}
	return append(c.StartedAt.UTC().AppendFormat(nil, time.RFC3339Nano), ","+c.Run...), nil
}

// UnmarshalText reads what MarshalText writes. An instant alone stands before every run that started
// then. Anything else is *ArgumentError.
func (c *Cursor) UnmarshalText(text []byte) error {
	*c = Cursor{}
	if len(text) == 0 {
		return nil
	}
	instant, id, _ := strings.Cut(string(text), ",")
	at, err := time.Parse(time.RFC3339Nano, instant)
	if err != nil {
		return &ArgumentError{Argument: "cursor", Reason: "does not begin with an instant: use Next of the page before, or an instant such as 2026-01-31T12:00:00Z"}
	}
	if id != "" {
		if err := claim.CheckID("cursor", id); err != nil {
			return err
		}
	}
	*c = Cursor{StartedAt: claim.Instant(at), Run: id}
	return nil
}

// Page is a page of runs.
type Page struct {
	Runs    []Summary
	Next    Cursor // the last run's position; the given cursor when the page is empty
	HasMore bool
}

// EventQuery selects events.
type EventQuery struct {
	After int64 // exclusive; not negative
	Limit int   // 1 to MaxLimit
}

// EventPage is a page of events, from one snapshot.
type EventPage struct {
	Events  []run.Event
	Next    int64 // the last event's sequence; After when the page is empty
	HasMore bool
	// Oldest and Latest retained sequence; 0 when there are none.
	Oldest, Latest int64
}

// GraphVersion is the metadata of one stored graph.
type GraphVersion struct {
	Ref         graph.Ref
	PublishedAt time.Time
}

// GraphQuery selects versions.
type GraphQuery struct {
	Before GraphCursor // exclusive; zero: from the newest
	Limit  int         // 1 to MaxLimit
}

// GraphCursor is a position in a list of versions.
type GraphCursor struct {
	PublishedAt time.Time
	Hash        string
}

// GraphPage is a page of versions.
type GraphPage struct {
	Versions []GraphVersion
	Next     GraphCursor // the last version's position; the given cursor when the page is empty
	HasMore  bool
}

// VersionPage is the page that q asks for, made of what a store found for it: the versions in
// their order, and one more than the limit when there are more (clause G3).
func VersionPage(q GraphQuery, found []GraphVersion) GraphPage {
	page := GraphPage{Versions: found, Next: q.Before}
	if page.HasMore = len(found) > q.Limit; page.HasMore {
		page.Versions = found[:q.Limit:q.Limit]
	}
	if n := len(page.Versions); n > 0 {
		last := page.Versions[n-1]
		page.Next = GraphCursor{PublishedAt: last.PublishedAt, Hash: last.Ref.Hash}
	}
	return page
}

// LatestVersion is what LatestGraph answers, given what GraphVersions does for a limit of 1
// (clause G3).
func LatestVersion(page GraphPage, err error) (GraphVersion, error) {
	switch {
	case err != nil:
		return GraphVersion{}, err
	case len(page.Versions) == 0:
		return GraphVersion{}, ErrNotFound
	}
	return page.Versions[0], nil
}
