package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/belay-run/belay/value"
)

var (
	// ErrDigest is wrapped when bytes are not those their hash names.
	ErrDigest = errors.New("belay: the graph's bytes do not match its hash")
	// ErrIncompatible is matched by every *IncompatibleError.
	ErrIncompatible = errors.New("belay: this build cannot compile the graph")
)

// IncompatibleError is a stored graph whose bytes are intact but which this build
// cannot compile: it was published by another release.
type IncompatibleError struct {
	Ref         Ref
	Diagnostics Diagnostics
}

func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("%v %s (%s): run it with the release that published it, or a newer one: %v", ErrIncompatible, e.Ref.ID, e.Ref.Hash, e.Diagnostics)
}

// Is makes errors.Is(err, ErrIncompatible) true.
func (e *IncompatibleError) Is(target error) bool { return target == ErrIncompatible }

// Unwrap gives the diagnostics.
func (e *IncompatibleError) Unwrap() error { return e.Diagnostics }

// Publish normalizes doc, fills in contract versions, config defaults, reads, writes
// and timeouts from the catalog, validates it and compiles it. Errors come as
// Diagnostics, all at once; a graph with only warnings is compiled, and
// Compiled.Warnings has them. doc is not modified. Publishing the document of what
// was published, with the same catalog, gives the same hash.
func Publish(doc *Document, catalog Catalog) (*Compiled, error) {
	if doc == nil {
		return nil, Diagnostics{{Code: codeMissingMember, Severity: SeverityError, Message: "There is no document: pass one."}}
	}
	c := newCompiler(doc.clone())
	compiled := c.all(catalog)
	found := c.sorted()
	if len(found.Errors()) > 0 {
		return nil, found
	}
	compiled.warnings = found
	return compiled, nil
}

// all does everything that publication does.
func (c *compiler) all(catalog Catalog) *Compiled {
	c.checkEncodable()
	types := c.materialize(catalog)
	compiled := c.compile()
	c.checkPorts(types)
	c.warn()
	if c.failed() {
		return compiled
	}
	for _, e := range c.doc.Edges {
		slices.Sort(e.From)
	}
	raw, err := c.doc.canonical()
	if err == nil {
		err = value.Check("published graph", len(raw), MaxDocument)
	}
	if err != nil {
		c.fromValue(codeInvalidValue, "", err)
	}
	compiled.bytes, compiled.ref = raw, Ref{ID: c.doc.ID, Hash: value.Hash(raw)}
	return compiled
}

// Load compiles a published graph from its stored bytes as it stands: nothing is
// injected, no catalog is consulted, no warnings are looked for. Bytes that are not
// those of ref.Hash wrap ErrDigest; intact bytes that this build cannot compile
// answer *IncompatibleError. raw is kept and must not change afterwards.
func Load(ref Ref, raw []byte) (*Compiled, error) {
	if value.Hash(raw) != ref.Hash {
		return nil, fmt.Errorf("%w: graph %s (%s)", ErrDigest, shorten(ref.ID), shorten(ref.Hash))
	}
	doc, err := Parse(raw)
	var found Diagnostics
	switch {
	case errors.As(err, &found):
		return nil, &IncompatibleError{Ref: ref, Diagnostics: found}
	case err != nil:
		return nil, err
	}
	c := newCompiler(doc)
	if doc.ID != ref.ID {
		c.report(codeInvalidID, "/id", "The document's id is not %q, under which it is stored.", shorten(ref.ID))
	}
	for _, id := range sortedKeys(doc.Nodes) {
		if doc.Nodes[id].Version < 1 {
			c.report(codeMissingVersion, at(at("/nodes", id), "version"), "The node has no contract version: publish the graph again.")
		}
	}
	compiled := c.compile()
	if c.failed() {
		return nil, &IncompatibleError{Ref: ref, Diagnostics: c.sorted()}
	}
	compiled.ref, compiled.bytes = ref, raw
	return compiled, nil
}
