package sqlite

import (
	"context"
	"os"
	"time"
)

// wal keeps the write-ahead log bounded. SQLite copies the log into the file as far as no
// reader still needs it, and begins it anew only when none does; readers that overlap
// without a gap would let it grow for ever. So once it is well above the size at which it is
// copied, the writer keeps this store's readers out for a moment and truncates it. Readers
// of other processes cannot be kept out: while one is in the way, it is tried again later.
type wal struct {
	path    string
	most    int64 // bytes at which it is truncated
	readers *readers
	next    time.Time
	// patience is how long readers may take to leave.
	patience time.Duration
}

const (
	walFactor   = 4 // times the size at which SQLite copies the log
	walPatience = 200 * time.Millisecond
	walPause    = time.Second // after a try in vain
)

func newWAL(file string, pages int, r *readers) *wal {
	return &wal{path: file + "-wal", most: int64(pages) * pageSize * walFactor, readers: r, patience: walPatience}
}

// keep truncates the log if it has become too long. It is called between transactions. That
// it could not be done harms nobody, and is tried again.
func (l *wal) keep(c *conn) {
	info, err := os.Stat(l.path)
	if err != nil || info.Size() <= l.most || time.Now().Before(l.next) {
		return
	}
	if !l.truncate(c) {
		l.next = time.Now().Add(walPause)
	}
}

func (l *wal) truncate(c *conn) (done bool) {
	release, held := l.readers.keepOut(l.patience)
	if !held {
		return false
	}
	defer release()
	err := c.read(context.Background(), "pragma wal_checkpoint(truncate)", func(r row) error {
		done = r.int(0) == 0 // else busy: another process's reader is in the way
		return nil
	})
	return done && err == nil
}
