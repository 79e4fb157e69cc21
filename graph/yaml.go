package graph

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/belay-run/belay/value"
)

// maxYAMLNodes bounds what aliases may unfold to.
const maxYAMLNodes = 200_000

// ParseYAML reads a graph document from YAML. It is turned into JSON with the
// digits of numbers kept, and read as Parse does, so diagnostics carry the same
// paths. YAML is held to what JSON can say: a plain scalar is null, true, false or
// a JSON number where it looks like one (yes, no, on, off and dates are strings),
// other notations of numbers are refused, and so are merge keys, tags of one's own
// and a second document. Aliases are unfolded, within a bound.
func ParseYAML(raw []byte) (*Document, error) {
	if err := value.Check("graph document", len(raw), MaxDocument); err != nil {
		return nil, err
	}
	var y yamlReader
	y.read(raw)
	if y.failed() {
		return nil, y.sorted()
	}
	if err := value.Check("graph document", len(y.out), MaxDocument); err != nil {
		return nil, err
	}
	return Parse(y.out)
}

type yamlReader struct {
	reporter
	out   []byte
	nodes int
	// tooLarge: out is cut off.
	tooLarge bool
	open     map[*yaml.Node]bool // anchors being unfolded
}

func (y *yamlReader) read(raw []byte) {
	if !utf8.Valid(raw) {
		y.report(codeInvalidYAML, "", "The text is not valid UTF-8: correct it.")
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		y.report(codeInvalidYAML, "", "The document is empty: write a graph.")
		return
	} else if err != nil {
		y.syntax(raw, err)
		return
	}
	if err := dec.Decode(&more); err == nil {
		y.report(codeInvalidYAML, "", "There is a second document on line %d: keep one graph a file.", more.Line)
		return
	} else if !errors.Is(err, io.EOF) {
		y.syntax(raw, err)
		return
	}
	y.open = map[*yaml.Node]bool{}
	y.node(&doc, "")
}

// tabbed recognizes a line that is indented with a tab.
var tabbed = regexp.MustCompile(`(?m)^ *\t`)

func (y *yamlReader) syntax(raw []byte, err error) {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	hint := ""
	if tabbed.Match(raw) {
		hint = " Indent with spaces, not tabs."
	}
	y.report(codeInvalidYAML, "", "The text is not YAML: %s.%s", reason, hint)
}

func (y *yamlReader) wrong(n *yaml.Node, path, format string, args ...any) {
	y.report(codeInvalidYAML, path, "%s (line %d)", fmt.Sprintf(format, args...), n.Line)
}

func (y *yamlReader) node(n *yaml.Node, path string) {
	if y.nodes++; y.nodes > maxYAMLNodes || len(y.out) > MaxDocument {
		if y.nodes++; !y.failed() {
			y.tooLarge = true
			y.wrong(n, path, "The document unfolds to more than %d values or %d bytes: use fewer aliases.", maxYAMLNodes, MaxDocument)
		}
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, content := range n.Content {
			y.node(content, path)
		}
	case yaml.AliasNode:
		if y.open[n.Alias] {
			y.out = append(y.out, "null"...)
			y.wrong(n, path, "The alias *%s is within its own anchor: write the value out.", n.Value)
			return
		}
		y.open[n.Alias] = true
		y.node(n.Alias, path)
		delete(y.open, n.Alias)
	case yaml.MappingNode:
		y.mapping(n, path)
	case yaml.SequenceNode:
		if n.Tag != "!!seq" && n.Tag != "" {
			y.wrong(n, path, "The tag %s is not supported: remove it.", n.Tag)
		}
		y.out = append(y.out, '[')
		for i, item := range n.Content {
			if i > 0 {
				y.out = append(y.out, ',')
			}
			y.node(item, atIndex(path, i))
		}
		y.out = append(y.out, ']')
	default:
		y.scalar(n, path)
	}
}

func (y *yamlReader) mapping(n *yaml.Node, path string) {
	if n.Tag != "!!map" && n.Tag != "" {
		y.wrong(n, path, "The tag %s is not supported: remove it.", n.Tag)
	}
	y.out = append(y.out, '{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			y.wrong(key, path, "A name must be a string: write one.")
			continue
		}
		if key.Tag == "!!merge" {
			y.wrong(key, path, "The merge key << is not supported: write the members out.")
			continue
		}
		if len(y.out) > 0 && y.out[len(y.out)-1] != '{' {
			y.out = append(y.out, ',')
		}
		y.quote(key, path, key.Value)
		y.out = append(y.out, ':')
		y.node(n.Content[i+1], at(path, key.Value))
	}
	y.out = append(y.out, '}')
}

func (y *yamlReader) quote(n *yaml.Node, path, text string) {
	out, err := jsontext.AppendQuote(y.out, text)
	if err != nil {
		// The whole text was found to be valid, so only an escape can be at fault.
		y.out = append(y.out, `""`...)
		y.wrong(n, path, "The text is not valid UTF-8: correct it.")
		return
	}
	y.out = out
}

func (y *yamlReader) scalar(n *yaml.Node, path string) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	tag := n.ShortTag()
	if n.Style&yaml.TaggedStyle != 0 && tag != "!!str" {
		y.out = append(y.out, "null"...)
		y.wrong(n, path, "The tag %s is not supported: remove it.", tag)
		return
	}
	if n.Style&quoted != 0 || n.Style&yaml.TaggedStyle != 0 {
		y.quote(n, path, n.Value)
		return
	}
	switch tag {
	case "!!null":
		y.out = append(y.out, "null"...)
	case "!!bool":
		y.out = append(y.out, strings.ToLower(n.Value)...)
	case "!!int", "!!float":
		if !jsontext.Value(n.Value).IsValid() {
			y.out = append(y.out, "null"...)
			y.wrong(n, path, "%s is not a number as JSON writes one: write plain decimal digits, or quote it to make it a string.", shorten(n.Value))
			return
		}
		y.out = append(y.out, n.Value...)
	default:
		y.quote(n, path, n.Value)
	}
}
