//go:build !unix

package std

import (
	"os/exec"
	"strconv"
)

// shell is the command line of a script.
func shell(script string) []string { return []string{"cmd.exe", "/d", "/s", "/c", script} }

// group is a command and the processes it started.
type group struct{ cmd *exec.Cmd }

func isolate(cmd *exec.Cmd) group { return group{cmd} }

// terminate ends the command's tree: a process without a console cannot be asked to.
func (g group) terminate() { g.kill() }

// kill ends the command and, as far as the system still knows them as its children,
// what it started.
func (g group) kill() {
	_ = exec.Command("taskkill", "/t", "/f", "/pid", strconv.Itoa(g.cmd.Process.Pid)).Run()
	_ = g.cmd.Process.Kill()
}

// sweep does nothing: the children of a process that has ended are not known.
func (g group) sweep() {}
