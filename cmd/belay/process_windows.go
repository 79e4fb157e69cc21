package main

import "os"

// thisProcess is what tells this process from others.
func thisProcess() process {
	host, err := os.Hostname()
	if err != nil {
		return process{pid: os.Getpid()}
	}
	return process{host, os.Getpid()}
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
