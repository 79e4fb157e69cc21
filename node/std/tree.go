package std

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/belay-run/belay/value"
)

// tree is a JSON value of a config whose strings are templates.
type tree struct {
	fixed   value.Value // a value without expressions, as it is
	text    *template
	list    []tree
	names   []string // of an object, sorted
	members []tree
}

// tree compiles a canonical value.
func (s scope) tree(v value.Value, path string) (tree, error) {
	switch v[0] {
	case '"':
		var text string
		if err := json.Unmarshal(v, &text); err != nil {
			return tree{}, err
		}
		t, err := s.template(text, path)
		if err != nil {
			return tree{}, err
		}
		if text, ok := t.literal(); ok {
			fixed, err := value.Of(text)
			return tree{fixed: fixed}, err
		}
		return tree{text: &t}, nil
	case '[':
		var items []value.Value
		if err := json.Unmarshal(v, &items); err != nil {
			return tree{}, err
		}
		out, dynamic := tree{list: make([]tree, len(items))}, false
		var errs []error
		for i, item := range items {
			var err error
			out.list[i], err = s.tree(item, path+"/"+strconv.Itoa(i))
			errs = append(errs, err)
			dynamic = dynamic || out.list[i].fixed == nil || !value.Equal(out.list[i].fixed, item)
		}
		if !dynamic {
			out = tree{fixed: v}
		}
		return out, errors.Join(errs...)
	case '{':
		var members map[string]value.Value
		if err := json.Unmarshal(v, &members); err != nil {
			return tree{}, err
		}
		out, dynamic := tree{names: slices.Sorted(maps.Keys(members))}, false
		var errs []error
		for _, name := range out.names {
			member, err := s.tree(members[name], path+"/"+escape(name))
			errs = append(errs, err)
			out.members = append(out.members, member)
			dynamic = dynamic || member.fixed == nil || !value.Equal(member.fixed, members[name])
		}
		if !dynamic {
			out = tree{fixed: v}
		}
		return out, errors.Join(errs...)
	}
	return tree{fixed: v}, nil
}

// value is what the tree stands for.
func (t tree) value(reads map[string]value.Value) (value.Value, error) {
	switch {
	case t.fixed != nil:
		return t.fixed, nil
	case t.text != nil:
		return t.text.value(reads)
	}
	var b bytes.Buffer
	parts, open, end := t.list, byte('['), byte(']')
	if t.names != nil {
		parts, open, end = t.members, '{', '}'
	}
	b.WriteByte(open)
	for i, p := range parts {
		v, err := p.value(reads)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if t.names != nil {
			name, err := value.Of(t.names[i])
			if err != nil {
				return nil, err
			}
			b.Write(name)
			b.WriteByte(':')
		}
		b.Write(v)
	}
	b.WriteByte(end)
	return value.Canonical(b.Bytes())
}

// escape makes a name a token of a JSON Pointer.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
