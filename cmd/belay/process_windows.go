package main

import (
	"os"

	"github.com/belay-run/belay/backend/sqlite"
)

// thisProcess is what tells this process from others.
func thisProcess() sqlite.Driver {
	host, err := os.Hostname()
	if err != nil {
		return sqlite.Driver{PID: os.Getpid()}
	}
	return sqlite.Driver{Host: host, PID: os.Getpid()}
}

// alive reports whether a process of this host runs.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release() // the handle only
	return true
}
