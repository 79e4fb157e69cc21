package sqlite

import (
	"testing"

	"golang.org/x/sys/windows"
)

var readOnlyError error = windows.ERROR_WRITE_PROTECT

func umask(*testing.T, int) {}
