package std

import (
	"errors"
	"fmt"
	"slices"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

// newType makes a node type whose configs are compiled when they are checked, and again
// when a node is prepared. compile reports everything that is wrong, by path.
func newType(contract graph.NodeType, compile func(config value.Value, names scope, writes []string) (node.Func, error)) node.Type {
	contract.Check = func(config value.Value, reads, writes []string) error {
		_, err := compile(config, newScope(reads), writes)
		return err
	}
	return node.Raw(contract, func(site node.Site) (node.Func, error) {
		return compile(site.Config, newScope(site.Reads), site.Writes)
	})
}

// written is an update of those of the values that the graph's node writes. A
// value.Value is left to the runtime, which checks it as it checks every update.
func written(call *node.Call, values map[string]any) (map[string]value.Value, error) {
	update := map[string]value.Value{}
	for name, v := range values {
		if !slices.Contains(call.Writes, name) {
			continue
		}
		if raw, ok := v.(value.Value); ok {
			update[name] = raw
			continue
		}
		encoded, err := value.Of(v)
		if err != nil {
			return nil, node.Permanent(at("/"+name, err))
		}
		update[name] = encoded
	}
	return update, nil
}

func unwritten(path, name string) error {
	return &value.Error{Path: path, Reason: fmt.Sprintf("the node does not write %q: list it under the node's writes", name)}
}

// at says where in a config an error is.
func at(path string, err error) error {
	if err == nil {
		return nil
	}
	if inner := (*value.Error)(nil); errors.As(err, &inner) {
		return &value.Error{Path: path + inner.Path, Reason: inner.Reason}
	}
	return &value.Error{Path: path, Reason: err.Error()}
}
