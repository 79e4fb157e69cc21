package node

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Of makes a typed node without config.
//
// In and Out are structs, or maps with string keys. The fields of a struct are bound to
// the state by JSON name: those of In are read, those of Out written. Names, schemas,
// and which are required (a field that is no pointer, and has neither omitempty nor
// omitzero) are inferred from the types. A graph's node may map each name to another
// one of the state, and may leave writes out, which are then dropped. A field that
// encoding leaves out (omitempty, omitzero) is not written. A map reads what the
// graph's node lists, and writes what it holds. struct{} reads or writes nothing.
//
// What is read is decoded for each attempt; a value that does not fit is a permanent
// failure that names its path. Numbers keep their digits in integers, json.Number and
// json.RawMessage. Refused, when the type is added to a registry, are: other kinds than
// struct and map; interfaces other than any, chan, func and recursive types within them;
// and in In, Out and Config themselves, embedded fields with a JSON form of their own.
func Of[In, Out any](name string, version int, fn func(context.Context, In) (Out, error), opts ...Option) Type {
	t := typed[In, Out](name, version, opts, fn == nil, nil)
	reads, writes := t.reads, t.writes
	t.prepare = func(Site) (Func, error) { return bind(reads, writes, fn), nil }
	return t.Type
}

// Configured makes a typed node with a config, which is a struct, or a map with string
// keys. Its schema is inferred, and closed: a config with unknown names is refused. It
// is decoded once for each node of a graph and shared by all attempts, so fn must not
// modify what it points to. In and Out are as Of says.
func Configured[Config, In, Out any](name string, version int, fn func(context.Context, Config, In) (Out, error), opts ...Option) Type {
	t := typed[In, Out](name, version, opts, fn == nil, reflect.TypeFor[Config]())
	reads, writes := t.reads, t.writes
	t.prepare = func(site Site) (Func, error) {
		var config Config
		if err := decodeInto(site.Config, &config); err != nil {
			return nil, err
		}
		return bind(reads, writes, func(ctx context.Context, in In) (Out, error) { return fn(ctx, config, in) }), nil
	}
	return t.Type
}

// typedType is a Type under construction, with the shapes that its function is bound by.
type typedType struct {
	Type
	reads, writes shape
}

func typed[In, Out any](name string, version int, opts []Option, missing bool, config reflect.Type) typedType {
	t := typedType{Type: Type{contract: graph.NodeType{Name: name, Version: version}, canonical: true}}
	c := &t.contract
	var err error
	if missing {
		t.refuse("the function is nil: pass the function that does the work")
	}
	if config != nil {
		if c.Config, err = configSchema(config); err != nil {
			t.refuse("Config: %v", err)
		}
	}
	if t.reads, err = shapeOf(reflect.TypeFor[In](), true); err != nil {
		t.refuse("In: %v", err)
	}
	if t.writes, err = shapeOf(reflect.TypeFor[Out](), false); err != nil {
		t.refuse("Out: %v", err)
	}
	c.Reads, c.OpenReads = t.reads.ports, t.reads.open
	c.Writes, c.OpenWrites = t.writes.ports, t.writes.open
	t.finish(opts)
	return t
}

// bind turns a typed function into one over values.
func bind[In, Out any](reads, writes shape, fn func(context.Context, In) (Out, error)) Func {
	return func(ctx context.Context, call *Call) (map[string]value.Value, error) {
		in, err := read[In](reads, call)
		if err != nil {
			return nil, Permanent(invalidAt("reading the state", err))
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		if update, ok := writes.fields.encode(reflect.ValueOf(&out).Elem(), call.Writes); ok {
			return update, nil
		}
		update, err := encodeMembers(out)
		if err != nil {
			return nil, Permanent(&codedError{code: run.CodeInvalidUpdate, err: invalidAt("writing the state", err)})
		}
		maps.DeleteFunc(update, func(name string, _ value.Value) bool {
			_, declared := writes.ports[name]
			return declared && !slices.Contains(call.Writes, name)
		})
		return update, nil
	}
}

// read decodes what the node reads.
func read[In any](reads shape, call *Call) (in In, err error) {
	if reads.fields.decode(call.Reads, reflect.ValueOf(&in).Elem()) {
		return in, nil
	}
	var whole In
	object, err := reads.object(call.Reads)
	if err == nil {
		err = decodeInto(object, &whole)
	}
	return whole, err
}

// object puts what is read together as one JSON object.
func (s shape) object(values map[string]value.Value) ([]byte, error) {
	names := s.names
	if s.open {
		names = slices.Sorted(maps.Keys(values))
	}
	size := 2
	for _, name := range names {
		size += len(name) + len(values[name]) + len(`"":,`)
	}
	object := append(make([]byte, 0, size), '{')
	at := func(name string) string { return string(jsontext.Pointer("").AppendToken(name)) }
	for _, name := range names {
		raw := values[name]
		switch {
		case raw == nil && s.ports[name].Required:
			return nil, &value.Error{Path: at(name), Reason: "nothing was written to it yet: declare a default in the graph, or make the Go field optional"}
		case raw == nil:
			continue
		case string(raw) == "null" && !s.open && !s.nullable[name]:
			return nil, &value.Error{Path: at(name), Reason: "null does not fit: make the Go field a pointer"}
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		var err error
		if object, err = jsontext.AppendQuote(object, name); err != nil {
			return nil, &value.Error{Path: at(name), Reason: "the name is not valid UTF-8"}
		}
		object = append(append(object, ':'), raw...)
	}
	return append(object, '}'), nil
}
