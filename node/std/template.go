package std

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

// template is one string of a config: text and expressions in turn.
type template struct {
	path  string // of the string in its config
	parts []part
}

// part is a text, or an expression when expr or variable is set.
type part struct {
	text     string
	variable string // the expression is this variable and nothing else
	expr     *graph.Expression
}

func (p part) dynamic() bool { return p.expr != nil }

// scope compiles templates over the names a node reads.
type scope graph.Variables

func newScope(reads []string) scope {
	s := scope{}
	for _, name := range reads {
		s[name] = nil
	}
	return s
}

var identifier = regexp.MustCompile(`^[\p{L}_][\p{L}\p{Nd}_]*$`)

// template compiles a string of a config. Every bad expression in it is reported, as
// *value.Error with the string's path.
func (s scope) template(text, path string) (template, error) {
	t := template{path: path}
	var literal strings.Builder
	var errs []error
	for rest := text; rest != ""; {
		at := strings.Index(rest, "${")
		if at < 0 {
			literal.WriteString(rest)
			break
		}
		if at > 0 && rest[at-1] == '$' {
			literal.WriteString(rest[:at-1])
			literal.WriteString("${")
			rest = rest[at+2:]
			continue
		}
		literal.WriteString(rest[:at])
		source, after, ok := cutExpression(rest[at+2:])
		if !ok {
			errs = append(errs, &value.Error{Path: path, Reason: `"${" has no closing "}": add it, or write "$${" for a literal "${"`})
			break
		}
		p, err := s.expression(source)
		if err != nil {
			errs = append(errs, &value.Error{Path: path, Reason: err.Error()})
		}
		if literal.Len() > 0 {
			t.parts = append(t.parts, part{text: literal.String()})
			literal.Reset()
		}
		t.parts = append(t.parts, p)
		rest = after
	}
	if literal.Len() > 0 {
		t.parts = append(t.parts, part{text: literal.String()})
	}
	return t, errors.Join(errs...)
}

func (s scope) expression(source string) (part, error) {
	expr, err := graph.CompileExpression(source, graph.Variables(s))
	if err != nil {
		return part{}, err
	}
	p := part{expr: expr}
	name := strings.TrimSpace(source)
	if _, read := s[name]; read && identifier.MatchString(name) {
		p.variable = name
	}
	return p, nil
}

// cutExpression cuts text after the "}" that closes an expression: one that is not
// within braces, or within a string, of the expression's own.
func cutExpression(text string) (source, after string, ok bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return text[:i], text[i+1:], true
			}
			depth--
		case '"', '\'', '`':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
		}
	}
	return "", "", false
}

// whole reports whether the string is exactly one expression.
func (t template) whole() bool { return len(t.parts) == 1 && t.parts[0].dynamic() }

// literal is the string itself when it holds no expression.
func (t template) literal() (text string, ok bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && !t.parts[0].dynamic():
		return t.parts[0].text, true
	}
	return "", false
}

// value is what the string stands for.
func (t template) value(reads map[string]value.Value) (value.Value, error) {
	if t.whole() {
		return t.eval(t.parts[0], reads)
	}
	text, err := t.text(reads)
	if err != nil {
		return nil, err
	}
	return value.Of(text)
}

// text is what the string stands for, as text.
func (t template) text(reads map[string]value.Value) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if !p.dynamic() {
			b.WriteString(p.text)
			continue
		}
		v, err := t.eval(p, reads)
		if err != nil {
			return "", err
		}
		text, err := asText(v)
		if err != nil {
			return "", t.refuse(p, err.Error())
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

func (t template) eval(p part, reads map[string]value.Value) (value.Value, error) {
	if p.variable != "" {
		if v := reads[p.variable]; v != nil {
			return v, nil
		}
		return value.Null(), nil
	}
	v, err := p.expr.Eval(reads)
	if err != nil {
		return nil, node.Permanent(fmt.Errorf("config%s: %w", t.path, err))
	}
	return v, nil
}

func (t template) refuse(p part, reason string) error {
	return node.Permanent(fmt.Errorf("config%s: ${%s} %s", t.path, p.expr.Source(), reason))
}

var errNull = errors.New("is null, where a text is needed: give it a default, as in ${name ?? ''}")

// asText is a value as text: a string's content, and the JSON of anything else.
func asText(v value.Value) (string, error) {
	switch {
	case string(v) == "null":
		return "", errNull
	case v[0] == '"':
		var text string
		err := json.Unmarshal(v, &text)
		return text, err
	}
	return string(v), nil
}
