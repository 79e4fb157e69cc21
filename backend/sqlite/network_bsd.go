//go:build darwin || freebsd

package sqlite

import "syscall"

// mntLocal is MNT_LOCAL of sys/mount.h.
const mntLocal = 0x1000

func networkFileSystem(dir string) (kind string, remote bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "", false
	}
	return "not local", uint64(st.Flags)&mntLocal == 0
}
