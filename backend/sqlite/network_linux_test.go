package sqlite

import (
	"errors"
	"testing"
)

// TestNetworkFileSystemsAreKnown: by the magic numbers of statfs, sign-extended or not.
func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, want := range map[int64]string{0x6969: "nfs", 0xff534d42: "cifs", -0xacb2be: "cifs", 0x01021997: "9p", 0xef53: "", 0x01021994: "", 0x9123683e: ""} {
		if kind, remote := remoteKind(magic); kind != want || remote != (want != "") {
			t.Errorf("%#x is %q, not %q", magic, kind, want)
		}
	}
}

// TestNetworkFileSystemsAreRefused: unless the option says that it is known.
func TestNetworkFileSystemsAreRefused(t *testing.T) {
	path := freshFile(t)
	statfs = func(string) (string, bool) { return "nfs", true }
	defer func() { statfs = networkFileSystem }()
	e, ok := errors.AsType[*OpenError](prepareFile(path, Options{}))
	if !ok || e.Problem != ProblemNetwork || e.Remedy == "" {
		t.Errorf("%v", e)
	}
	must(t, prepareFile(path, Options{NetworkFileSystem: true}))
}
