package sqlite

import "syscall"

// remoteKinds are the file systems, by the magic number of statfs(2), whose locks or
// shared memory are not known to hold between the processes that use them.
var remoteKinds = map[uint32]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x5346414f: "afs",
	0x6b414653: "afs",
	0x73757245: "coda",
	0x564c:     "ncp",
	0x01021997: "9p",
	0x00c36400: "ceph",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x01161970: "gfs2",
	0x7461636f: "ocfs2",
	0x19830326: "fhgfs",
	0x65735546: "fuse",
}

func networkFileSystem(dir string) (kind string, remote bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "", false
	}
	return remoteKind(int64(st.Type))
}

func remoteKind(magic int64) (kind string, remote bool) {
	kind, remote = remoteKinds[uint32(magic)]
	return kind, remote
}
