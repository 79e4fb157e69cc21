//go:build belay_killpoints && unix

package sqlite

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The variable is NAME or NAME:N: the process ends at the N-th time (from 1) that it
// passes the point NAME.
const killpointVariable = "BELAY_SQLITE_KILLPOINT"

var (
	killpointName, killpointNth = readKillpoint()
	killpointPassed             atomic.Int64
)

func readKillpoint() (string, int64) {
	name, count, _ := strings.Cut(os.Getenv(killpointVariable), ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	return name, n
}

func point(name string) {
	if name == killpointName && killpointPassed.Add(1) == killpointNth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
