//go:build unix

package std

import (
	"os/exec"
	"syscall"
)

// shell is the command line of a script.
func shell(script string) []string { return []string{"/bin/sh", "-c", script, "sh"} }

// group is a command's process group.
type group struct{ cmd *exec.Cmd }

// isolate makes the command the leader of a process group of its own.
func isolate(cmd *exec.Cmd) group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return group{cmd}
}

// terminate asks every process of the group to end.
func (g group) terminate() { g.signal(syscall.SIGTERM) }

// kill ends every process of the group.
func (g group) kill() { g.signal(syscall.SIGKILL) }

// sweep ends what the command, which has ended, left behind in its group.
func (g group) sweep() { g.kill() }

func (g group) signal(s syscall.Signal) { _ = syscall.Kill(-g.cmd.Process.Pid, s) }
