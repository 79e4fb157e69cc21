package graph

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/value"
)

// MaxDocument bounds the text of a graph document, in bytes.
const MaxDocument = 4 << 20

// Parse reads a graph document from JSON. Unknown members, duplicate keys and
// wrong types are all reported, as Diagnostics. A text larger than MaxDocument
// answers *value.LimitError.
func Parse(raw []byte) (*Document, error) {
	if err := value.Check("graph document", len(raw), MaxDocument); err != nil {
		return nil, err
	}
	var p parser
	d := p.read(raw)
	if p.failed() {
		return nil, p.sorted()
	}
	return d, nil
}

// looksLikeYAML recognizes a text that begins, after comments, as YAML does and JSON
// does not.
var looksLikeYAML = regexp.MustCompile(`^\s*(#.*\s+)*(---\s|[A-Za-z$"'][\w$"'-]*:(\s|$))`)

// read answers the document as far as it can be read, nil when the text is not JSON.
func (p *parser) read(raw []byte) *Document {
	tree, wrong := parseTree(raw)
	if wrong != nil {
		if looksLikeYAML.Match(raw) {
			wrong.Message += " If it is YAML, name the file .yaml, or read it with ParseYAML."
		}
		p.add(*wrong)
		return nil
	}
	return p.document(tree)
}

// UnmarshalJSON reads a document as Parse does.
func (d *Document) UnmarshalJSON(raw []byte) error {
	parsed, err := Parse(raw)
	if err != nil {
		return err
	}
	*d = *parsed
	return nil
}

// parser turns a tree into a document and collects every problem on the way.
type parser struct{ reporter }

// reading reads one member's value; path is where it stands.
type reading func(e *element, path string)

// object hands e's members to their readers. Every member without a reader is
// unknown; of a repeated one only the first is read.
func (p *parser) object(e *element, path, what string, readers map[string]reading) {
	if !p.kind(e, path, '{', what+" must be an object") {
		return
	}
	seen := make(map[string]bool, len(readers))
	for _, m := range e.members {
		if seen[m.name] {
			continue
		}
		seen[m.name] = true
		read, known := readers[m.name]
		if !known {
			p.report(codeUnknownMember, at(path, m.name), "%s has no member %q: use %s.", what, m.name, list(sortedKeys(readers)))
			continue
		}
		read(m.value, at(path, m.name))
	}
}

// named hands every member of an object of named things to read.
func (p *parser) named(e *element, path, what string, read func(name string, e *element, path string)) {
	if !p.kind(e, path, '{', what+" must be an object, one member a name") {
		return
	}
	seen := make(map[string]bool, len(e.members))
	for _, m := range e.members {
		if !seen[m.name] {
			read(m.name, m.value, at(path, m.name))
		}
		seen[m.name] = true
	}
}

func (p *parser) kind(e *element, path string, kind byte, message string) bool {
	if e.kind != kind {
		p.report(codeWrongType, path, "%s, not %s.", message, kindName(e.kind))
		return false
	}
	return true
}

func kindName(kind byte) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	default:
		return "an object"
	}
}

func (p *parser) text(into *string) reading {
	return func(e *element, path string) {
		if p.kind(e, path, '"', "This must be a string") {
			*into = e.text
		}
	}
}

func (p *parser) flag(into *bool) reading {
	return func(e *element, path string) {
		if e.kind != 't' && e.kind != 'f' {
			p.report(codeWrongType, path, "This must be true or false, not %s.", kindName(e.kind))
			return
		}
		*into = e.kind == 't'
	}
}

func (p *parser) integer(into *int64, bits int) reading {
	return func(e *element, path string) {
		if !p.kind(e, path, '0', "This must be a whole number") {
			return
		}
		n, err := strconv.ParseInt(string(e.raw), 10, bits)
		if err != nil {
			p.report(codeInvalidValue, path, "%s is not a whole number in range: write one without a point or exponent.", shorten(string(e.raw)))
			return
		}
		*into = n
	}
}

func (p *parser) count(into *int) reading {
	return func(e *element, path string) {
		var n int64
		p.integer(&n, 32)(e, path)
		*into = int(n)
	}
}

func (p *parser) duration(into *Duration) reading {
	return func(e *element, path string) {
		if !p.kind(e, path, '"', "A duration must be a string like \"30s\"") {
			return
		}
		d, err := ParseDuration(e.text)
		if err != nil {
			p.report(codeInvalidValue, path, "%s.", sentence(err))
			return
		}
		*into = d
	}
}

func (p *parser) factor(into *Thousandths) reading {
	return func(e *element, path string) {
		if !p.kind(e, path, '0', "A factor must be a number") {
			return
		}
		f, err := ParseThousandths(string(e.raw))
		if err != nil {
			p.report(codeInvalidValue, path, "%s.", sentence(err))
			return
		}
		*into = f
	}
}

// value keeps any JSON. A repeated name inside was reported with the whole text.
func (p *parser) value(into *value.Value) reading {
	return func(e *element, path string) {
		v, err := value.Canonical(e.raw)
		if err != nil {
			if !e.repeats {
				p.fromValue(codeInvalidValue, path, err)
			}
			return
		}
		*into = v
	}
}

// fromValue reports an error of package value, or each of several, below path.
func (r *reporter) fromValue(code, path string, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			r.fromValue(code, path, one)
		}
		return
	}
	var bad *value.Error
	if errors.As(err, &bad) {
		r.report(code, path+bad.Path, "%s.", capital(bad.Reason))
		return
	}
	r.report(code, path, "%s.", sentence(err))
}

func (p *parser) strings(into *map[string]string) reading {
	return func(e *element, path string) {
		m := make(map[string]string, len(e.members))
		p.named(e, path, "This", func(name string, e *element, path string) {
			var text string
			p.text(&text)(e, path)
			m[name] = text
		})
		*into = m
	}
}

func (p *parser) document(e *element) *Document {
	d := &Document{}
	repeated(e, "", p.add)
	p.object(e, "", "A graph document", map[string]reading{
		"id": p.text(&d.ID),
		"$defs": func(e *element, path string) {
			p.named(e, path, "$defs", func(name string, e *element, path string) {
				var v value.Value
				p.value(&v)(e, path)
				set(&d.Defs, name, v)
			})
		},
		"inputs": func(e *element, path string) {
			p.named(e, path, "inputs", func(name string, e *element, path string) {
				var in Input
				p.object(e, path, "An input", map[string]reading{
					"schema": p.value(&in.Schema), "required": p.flag(&in.Required), "default": p.value(&in.Default),
				})
				set(&d.Inputs, name, in)
			})
		},
		"fields": func(e *element, path string) {
			p.named(e, path, "fields", func(name string, e *element, path string) {
				var f Field
				p.object(e, path, "A field", map[string]reading{
					"schema": p.value(&f.Schema), "default": p.value(&f.Default), "reducer": p.reducer(&f.Reducer),
				})
				set(&d.Fields, name, f)
			})
		},
		"nodes": func(e *element, path string) {
			p.named(e, path, "nodes", func(name string, e *element, path string) { set(&d.Nodes, name, p.node(e, path)) })
		},
		"edges": func(e *element, path string) {
			p.named(e, path, "edges", func(name string, e *element, path string) { set(&d.Edges, name, p.edge(e, path)) })
		},
		"outputs": func(e *element, path string) {
			p.named(e, path, "outputs", func(name string, e *element, path string) {
				var o Output
				p.object(e, path, "An output", map[string]reading{"from": p.text(&o.From)})
				set(&d.Outputs, name, o)
			})
		},
		"policies": func(e *element, path string) {
			p.object(e, path, "policies", map[string]reading{"max_supersteps": p.integer(&d.Policies.MaxSupersteps, 64)})
		},
	})
	return d
}

func (p *parser) node(e *element, path string) Node {
	var n Node
	p.object(e, path, "A node", map[string]reading{
		"use": p.text(&n.Use), "version": p.count(&n.Version), "config": p.value(&n.Config),
		"reads": p.strings(&n.Reads), "writes": p.strings(&n.Writes), "timeout": p.duration(&n.Timeout),
		"retry": func(e *element, path string) {
			n.Retry = &Retry{}
			p.object(e, path, "A retry policy", map[string]reading{
				"max_attempts": p.count(&n.Retry.MaxAttempts),
				"backoff": func(e *element, path string) {
					b := &n.Retry.Backoff
					p.object(e, path, "A backoff", map[string]reading{
						"initial": p.duration(&b.Initial), "factor": p.factor(&b.Factor), "cap": p.duration(&b.Cap),
					})
				},
			})
		},
	})
	return n
}

func (p *parser) edge(e *element, path string) Edge {
	var g Edge
	p.object(e, path, "An edge", map[string]reading{
		"from": p.sources(&g.From), "to": p.text(&g.To), "when": p.text(&g.When),
	})
	return g
}

func (p *parser) sources(into *Sources) reading {
	return func(e *element, path string) {
		switch e.kind {
		case '"':
			*into = Sources{e.text}
		case '[':
			*into = Sources{}
			for i, item := range e.items {
				var name string
				p.text(&name)(item, atIndex(path, i))
				*into = append(*into, name)
			}
		default:
			p.report(codeWrongType, path, "from must be a name, or the list of names of a barrier, not %s.", kindName(e.kind))
		}
	}
}

func (p *parser) reducer(into *Reducer) reading {
	return func(e *element, path string) {
		if e.kind == '"' {
			into.Name = e.text
			return
		}
		if e.kind != '{' {
			p.report(codeWrongType, path, "A reducer must be a name, or an object with a name and options, not %s.", kindName(e.kind))
			return
		}
		if e.member("name") == nil {
			p.report(codeMissingMember, at(path, "name"), "A reducer needs a name: %s.", list(reducerNames))
		}
		p.object(e, path, "A reducer", map[string]reading{
			"name": p.text(&into.Name), "unique": p.flag(&into.Unique), "max": p.count(&into.Max),
			"by": p.text(&into.By), "deep": p.flag(&into.Deep),
		})
	}
}

func set[T any](m *map[string]T, name string, v T) {
	if *m == nil {
		*m = make(map[string]T)
	}
	(*m)[name] = v
}

// list joins words as a person would: "a, b or c".
func list(words []string) string {
	if more := len(words) - 12; more > 1 {
		words = append(slices.Clone(words[:12]), fmt.Sprintf("%d more", more))
	}
	switch len(words) {
	case 0:
		return "none"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// sentence is err's text without the prefix of an error value.
func sentence(err error) string { return capital(strings.TrimPrefix(err.Error(), "belay: ")) }

func capital(s string) string {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
