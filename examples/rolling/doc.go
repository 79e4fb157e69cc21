// Package rolling rolls a fleet from one release of a service to the next and back, with orders in
// flight and processes that are killed:
//
//	go test ./examples/rolling -run TestRolling -v
//
// The release before is built from its own commit in the history of this repository, the next one from
// the folder service: it adds a node type, raises the contract version of another, changes the graph,
// writes a newer document format when it is let, and brings the schema up to date. The steps are those of
// docs/deploying.md, and while they are taken the database is looked into ten times a second.
package rolling
