// Package postgres is the backend of a fleet: many processes on one PostgreSQL, version
// 13 or newer. docs/contract.md has what it does, proptest proves it.
//
// A transition is one statement and one round trip: the fenced update of the run and the
// events that go with it. Statements are in sql/*.sql and can be tried in psql after
// `\set schema belay`. Everything works through a transaction-pooling proxy, and in every
// exec mode of pgx (a proxy that cannot carry prepared statements needs one of the modes
// exec and simple_protocol).
package postgres
