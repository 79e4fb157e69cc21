package std

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

const setConfigSchema = `{
  "type": "object",
  "description": "Writes what expressions compute.",
  "additionalProperties": false,
  "required": ["values"],
  "properties": {
    "values": {"type": "object", "minProperties": 1, "description": "What is written, by the node's write names. Any JSON; the strings in it may hold expressions."}
  }
}`

// setType writes values that expressions compute.
func setType() node.Type {
	return newType(graph.NodeType{
		Name: "set", Version: 1, OpenReads: true, OpenWrites: true, Config: value.Value(setConfigSchema),
	}, func(config value.Value, names scope, writes []string) (node.Func, error) {
		var in struct {
			Values map[string]value.Value `json:"values"`
		}
		if err := json.Unmarshal(config, &in); err != nil {
			return nil, err
		}
		trees := map[string]tree{}
		var errs []error
		for _, name := range slices.Sorted(maps.Keys(in.Values)) {
			path := "/values/" + escape(name)
			if !slices.Contains(writes, name) {
				errs = append(errs, unwritten(path, name))
			}
			if _, err := value.Parse(in.Values[name]); err != nil {
				errs = append(errs, at(path, err))
				continue
			}
			t, err := names.tree(in.Values[name], path)
			trees[name], errs = t, append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return func(_ context.Context, call *node.Call) (map[string]value.Value, error) {
			update := make(map[string]value.Value, len(trees))
			for name, t := range trees {
				v, err := t.value(call.Reads)
				if err != nil {
					return nil, err
				}
				update[name] = v
			}
			return update, nil
		}, nil
	})
}
