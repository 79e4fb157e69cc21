// Package procstore makes one store of several: of handles on one database, and of processes that
// have it open, whose calls are made by each in turn. Tests of backends run the property kit on them.
package procstore
