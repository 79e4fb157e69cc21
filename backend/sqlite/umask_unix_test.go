//go:build unix

package sqlite

import (
	"syscall"
	"testing"
)

var readOnlyError error = syscall.EROFS

func umask(t *testing.T, mask int) {
	t.Helper()
	before := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(before) })
}
