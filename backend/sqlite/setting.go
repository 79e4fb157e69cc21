package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// setting is one pragma: what it is set to, and what it must read back as.
type setting struct{ name, value, want string }

const (
	pageSize     = 4096
	walSizeLimit = 64 << 20
)

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// flushing makes a flush reach the disk on systems where fsync(2) stops at the drive's
// cache (Apple's); others do not know the difference. It is set before the first write.
const flushing = "pragma fullfsync = 1; pragma checkpoint_fullfsync = 1"

// writerSettings are the writer's. Locks it wants are polled for by the writer itself
// (writer.begin), which can be interrupted and is quicker than SQLite's own handler, so its
// busy timeout only covers what happens within a statement.
func writerSettings(o Options) []setting {
	synchronous := "2"
	if o.Synchronous == Normal {
		synchronous = "1"
	}
	return []setting{
		{"journal_mode", "wal", "wal"},
		{"auto_vacuum", "", "2"},
		{"synchronous", synchronous, synchronous},
		{"fullfsync", "1", "1"},
		{"checkpoint_fullfsync", "1", "1"},
		{"foreign_keys", "1", "1"},
		{"busy_timeout", "5", "5"},
		{"wal_autocheckpoint", strconv.Itoa(o.CheckpointPages), strconv.Itoa(o.CheckpointPages)},
		{"journal_size_limit", strconv.Itoa(walSizeLimit), strconv.Itoa(walSizeLimit)},
		{"temp_store", "2", "2"},
		{"trusted_schema", "0", "0"},
		{"query_only", "0", "0"},
		{"encoding", "", "UTF-8"},
	}
}

func readerSettings(o Options) []setting {
	return []setting{
		{"journal_mode", "", "wal"},
		{"busy_timeout", milliseconds(o.BusyTimeout), milliseconds(o.BusyTimeout)},
		{"foreign_keys", "1", "1"},
		{"temp_store", "2", "2"},
		{"trusted_schema", "0", "0"},
		{"query_only", "1", "1"},
	}
}

var remedies = map[string]string{
	"journal_mode": "another program keeps the file out of WAL mode: close it, or move the file to a disk that supports shared memory",
	"auto_vacuum":  "the file had tables before belay came: run PRAGMA auto_vacuum = INCREMENTAL; VACUUM; on it once",
	"encoding":     "the file is not UTF-8: dump it and load it into a new one",
}

// apply sets what has a value and reads everything back.
func apply(ctx context.Context, c *conn, path string, settings []setting) error {
	for _, s := range settings {
		if s.value != "" {
			if err := c.run(ctx, fmt.Sprintf("pragma %s = %s", s.name, s.value)); err != nil {
				return err
			}
		}
	}
	return readBack(ctx, c, path, settings)
}

func readBack(ctx context.Context, c *conn, path string, settings []setting) error {
	for _, s := range settings {
		var got string
		err := c.read(ctx, "pragma "+s.name, func(r row) error {
			got = fmt.Sprint(r[0])
			return nil
		})
		if err != nil {
			return err
		}
		if got != s.want {
			remedy := remedies[s.name]
			if remedy == "" {
				remedy = "this build of SQLite does not take it: build with the version of modernc.org/sqlite that belay requires"
			}
			return &OpenError{Path: path, Problem: ProblemSetting, Setting: s.name, Want: s.want, Got: got, Remedy: remedy}
		}
	}
	return nil
}
