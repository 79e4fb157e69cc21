package graph

import (
	"strings"

	"github.com/belay-run/belay/value"
)

// Check reports everything that Parse and Publish would, in one go: what can be
// read of a document is checked even where other parts cannot be read. Nothing
// found means that both succeed.
func Check(raw []byte, catalog Catalog) Diagnostics {
	var stages stages
	stages.parse(raw)
	stages.publish(catalog)
	return stages.sorted()
}

// CheckYAML is Check for a document in YAML.
func CheckYAML(raw []byte, catalog Catalog) Diagnostics {
	var stages stages
	var y yamlReader
	if stages.sized(raw) {
		y.read(raw)
	}
	stages.take(y.list)
	if len(y.out) > 0 && !y.tooLarge {
		stages.parse(y.out)
		stages.publish(catalog)
	}
	return stages.sorted()
}

// stages collects what is found on the way from a text to a graph. What could not
// be read is no longer there for the stages behind, so what they miss is left out.
type stages struct {
	reporter
	doc    *Document
	unread []string
}

func (s *stages) sized(raw []byte) bool {
	err := value.Check("graph document", len(raw), MaxDocument)
	if err != nil {
		s.report(codeInvalidValue, "", "%s.", sentence(err))
	}
	return err == nil
}

func (s *stages) parse(raw []byte) {
	if !s.sized(raw) {
		return
	}
	var p parser
	s.doc = p.read(raw)
	s.take(p.list)
}

func (s *stages) publish(catalog Catalog) {
	if s.doc == nil {
		return
	}
	c := newCompiler(s.doc)
	c.all(catalog)
	s.take(c.list)
}

// take adds what a stage found, except about what an earlier stage could not read.
func (s *stages) take(found Diagnostics) {
	var unread []string
	for _, d := range found {
		if s.follows(d) {
			continue
		}
		s.add(d)
		switch d.Code {
		case codeWrongType, codeInvalidValue, codeInvalidYAML:
			unread = append(unread, d.Path)
		}
	}
	s.unread = append(s.unread, unread...)
}

func (s *stages) follows(d Diagnostic) bool {
	for _, path := range s.unread {
		if d.Path == path || strings.HasPrefix(d.Path, path+"/") {
			return true
		}
		// An edge that cannot be read leads somewhere all the same.
		if strings.HasPrefix(path, "/edges") && (d.Code == codeUnreachableNode || d.Code == codeNoEntryPoint || d.Code == codeDeadEnd) {
			return true
		}
	}
	return false
}
