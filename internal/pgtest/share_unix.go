//go:build unix

package pgtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// linger is for how many seconds an unused cluster stays, so that the next package of
// the same `go test` finds it.
const linger = "5"

// watcher ends a cluster that nobody uses. Every user of it holds a shared lock on the file
// "alive", which the system drops with the process however that ends. Arguments: folder,
// seconds to stay, folder of the programs.
const watcher = `
while [ -d "$1" ]; do
  flock "$1/alive" true
  sleep "$2"
  flock -n "$1/alive" sh -c '
    pid=$(head -n 1 "$0/server/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null &&
      while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    if [ -n "$1" ]; then rm -rf "$0"; else rm -rf "$0/server"; fi
    :' "$1" "$3" && exit
done`

// alive keeps the locks of this process: a file that is collected is closed.
var alive []*os.File

// join joins the cluster that processes of this user share, and starts it when need be.
func join() (string, error) {
	bin, err := binaries()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(bin + settings))
	dir := filepath.Join(folder(), fmt.Sprintf("belay-pg-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:4])))
	if err := ownFolder(dir); err != nil {
		return "", err
	}
	lock, err := locked(filepath.Join(dir, "lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// Waits for a watcher that is ending the cluster just now.
	use, err := locked(filepath.Join(dir, "alive"), syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	alive = append(alive, use)
	c := &Cluster{bin: bin, dir: filepath.Join(dir, "server")}
	if pid, err := c.pid(); err == nil && syscall.Kill(pid, 0) == nil {
		if _, err := os.Stat(filepath.Join(dir, "server", "ready")); err == nil {
			return c.DSN(), nil
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return "", err
	}
	if c, err = newCluster(c.dir); err != nil {
		return "", err
	}
	if err := watch(c, dir, false); err != nil {
		return "", err
	}
	if err := c.create(nil); err != nil {
		return "", err
	}
	return c.DSN(), os.WriteFile(filepath.Join(c.dir, "ready"), nil, 0o644)
}

// watch starts the watcher of a cluster, in a session of its own so that what interrupts
// the test does not interrupt it. A private cluster does not linger, and its folder goes.
func watch(c *Cluster, dir string, private bool) error {
	seconds, all := linger, ""
	if private {
		use, err := locked(filepath.Join(dir, "alive"), syscall.LOCK_SH)
		if err != nil {
			return err
		}
		alive = append(alive, use)
		seconds, all = "0", "all"
	}
	if _, err := exec.LookPath("flock"); err != nil {
		return errors.New("the program flock (of util-linux) is missing: install it, or set BELAY_TEST_DSN")
	}
	cmd := exec.Command("sh", "-c", watcher, "belay-pg-watch", dir, seconds, all)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// ownFolder makes the folder, and refuses one that somebody else made.
func ownFolder(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to somebody else", dir)
	}
	return nil
}

func locked(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f, nil
		}
	}
}

// apply makes a command run as the account.
func (a account) apply(cmd *exec.Cmd) {
	if a.name != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
	}
}

// gone waits until none of the processes is left.
func (c *Cluster) gone(pids []int) error {
	for deadline := time.Now().Add(timeout); ; {
		left := false
		for _, pid := range pids {
			left = left || syscall.Kill(pid, 0) == nil
		}
		switch {
		case !left:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the server's processes %v do not end", pids)
		}
		time.Sleep(time.Millisecond)
	}
}
