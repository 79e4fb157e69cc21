//go:build !windows

package main

import (
	"errors"
	"os"
	"syscall"
)

// thisProcess is what tells this process from others. Where process numbers are kept apart from
// those of the host, as in a container, the host's name says so.
func thisProcess() process {
	host, err := os.Hostname()
	if err != nil {
		return process{pid: os.Getpid()}
	}
	if namespace, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		host += " " + namespace
	}
	return process{host, os.Getpid()}
}

// alive reports whether a process of this host runs.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
