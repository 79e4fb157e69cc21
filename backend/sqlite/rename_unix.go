//go:build unix && !linux

package sqlite

// renameNew gives a file another name, which nothing may have.
func renameNew(from, to string) error { return linkNew(from, to) }
