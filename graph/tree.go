package graph

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// element is one JSON value with its place in the text. Members keep the order
// and the repetitions of the text, so that every problem can be reported.
type element struct {
	kind    byte   // as jsontext.Kind: n t f " 0 { [
	raw     []byte // the value's text
	text    string // of a string
	members []member
	items   []*element
	repeats bool // a name occurs twice, here or below
}

type member struct {
	name  string
	value *element
}

// member is the first member of that name, nil when there is none.
func (e *element) member(name string) *element {
	for _, m := range e.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// parseTree reads exactly one JSON value. Repeated names are kept.
func parseTree(raw []byte) (*element, *Diagnostic) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	e, err := readElement(dec, raw)
	if err == nil {
		if _, more := dec.ReadToken(); more == nil {
			return nil, &Diagnostic{Code: codeInvalidJSON, Message: "There is text after the document's end: keep one document a file."}
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	if err != nil {
		return nil, syntaxDiagnostic(raw, err)
	}
	return e, nil
}

func readElement(dec *jsontext.Decoder, raw []byte) (*element, error) {
	kind := byte(dec.PeekKind())
	if kind != '{' && kind != '[' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		e := &element{kind: kind, raw: slices.Clone(v)}
		if kind == '"' {
			text, err := jsontext.AppendUnquote(nil, e.raw)
			if err != nil {
				return nil, err
			}
			e.text = string(text)
		}
		return e, nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	e := &element{kind: kind}
	var seen map[string]bool
	start := dec.InputOffset() - 1
	for {
		switch next := dec.PeekKind(); {
		case next == '}' || next == ']':
			if _, err := dec.ReadToken(); err != nil {
				return nil, err
			}
			e.raw = raw[start:dec.InputOffset()]
			return e, nil
		case kind == '{':
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			m := member{name: name.String()}
			if m.value, err = readElement(dec, raw); err != nil {
				return nil, err
			}
			if seen == nil {
				seen = make(map[string]bool)
			}
			e.repeats = e.repeats || seen[m.name] || m.value.repeats
			seen[m.name] = true
			e.members = append(e.members, m)
		default:
			item, err := readElement(dec, raw)
			if err != nil {
				return nil, err
			}
			e.repeats = e.repeats || item.repeats
			e.items = append(e.items, item)
		}
	}
}

func syntaxDiagnostic(raw []byte, err error) *Diagnostic {
	d := &Diagnostic{Code: codeInvalidJSON}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		d.Path = string(syntax.JSONPointer)
		reason := "it is not valid JSON"
		if syntax.Err != nil {
			reason = syntax.Err.Error()
		}
		line, column := position(raw, int(syntax.ByteOffset))
		d.Message = fmt.Sprintf("The text stops being JSON at line %d, column %d: %s.", line, column, reason)
		return d
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		d.Message = "The document ends before it is complete: write a whole JSON object."
		return d
	}
	d.Message = fmt.Sprintf("The text is not JSON: %v.", err)
	return d
}

func position(raw []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(raw))
	before := raw[:offset]
	line = bytes.Count(before, []byte{'\n'}) + 1
	return line, offset - bytes.LastIndexByte(before, '\n')
}

// at appends one step to a JSON Pointer.
func at(path, name string) string {
	if strings.ContainsAny(name, "~/") {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return path + "/" + name
}

func atIndex(path string, i int) string { return path + "/" + strconv.Itoa(i) }

// repeated reports every member name that occurs twice, anywhere below e.
func repeated(e *element, path string, report func(Diagnostic)) {
	if !e.repeats {
		return
	}
	seen := make(map[string]bool, len(e.members))
	for _, m := range e.members {
		if seen[m.name] {
			report(Diagnostic{
				Code: codeDuplicateMember, Path: at(path, m.name),
				Message: fmt.Sprintf("%q is written twice: keep one of them.", m.name),
			})
		}
		seen[m.name] = true
		repeated(m.value, at(path, m.name), report)
	}
	for i, item := range e.items {
		repeated(item, atIndex(path, i), report)
	}
}
