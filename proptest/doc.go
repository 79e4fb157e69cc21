// Package proptest proves a backend.
package proptest
