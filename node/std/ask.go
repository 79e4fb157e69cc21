package std

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

const askConfigSchema = `{
  "type": "object",
  "description": "Asks a question and completes when it is answered. In a cycle each round asks anew.",
  "additionalProperties": false,
  "required": ["question"],
  "properties": {
    "question": {"description": "What a person is shown. Any JSON; the strings in it may hold expressions."},
    "schema": {"type": ["object", "boolean"], "description": "The JSON Schema of the answer, taken as it stands. Defaults to any answer."},
    "into": {"type": "string", "minLength": 1, "description": "The node's write name that receives the answer. Without it the answer is only kept with the interrupt."},
    "deadline": {"type": "string", "minLength": 1, "description": "When the default answers: how long after the task was first planned, as in 48h, or an instant. Defaults to never."},
    "default": {"description": "The answer at the deadline, and refused without one. Any JSON; the strings in it may hold expressions. Defaults to null."}
  }
}`

// askType opens an interrupt, and completes with no update of its own once it is answered.
func askType() node.Type {
	return newType(graph.NodeType{
		Name: "ask", Version: 1, OpenReads: true, OpenWrites: true, Config: value.Value(askConfigSchema),
	}, func(config value.Value, names scope, writes []string) (node.Func, error) {
		q, err := newQuestion(config, names, writes)
		if err != nil {
			return nil, err
		}
		return q.run, nil
	})
}

// question is a prepared ask node.
type question struct {
	prompt   tree
	schema   value.Value
	into     string
	deadline *instant
	fallback *tree
}

func newQuestion(config value.Value, names scope, writes []string) (*question, error) {
	var in struct {
		Question value.Value `json:"question"`
		Schema   value.Value `json:"schema"`
		Into     string      `json:"into"`
		Deadline string      `json:"deadline"`
		Default  value.Value `json:"default"`
	}
	if err := json.Unmarshal(config, &in); err != nil {
		return nil, err
	}
	q := &question{into: in.Into, schema: in.Schema}
	var errs []error
	var err error
	q.prompt, err = names.tree(in.Question, "/question")
	errs = append(errs, err)
	if in.Into != "" && !slices.Contains(writes, in.Into) {
		errs = append(errs, unwritten("/into", in.Into))
	}
	var schema *value.Schema
	if in.Schema != nil {
		if schema, err = value.CompileSchema(in.Schema, nil); err != nil {
			errs = append(errs, at("/schema", err))
		}
	}
	if in.Deadline != "" {
		deadline, err := names.instant(in.Deadline, "/deadline", eitherWay)
		q.deadline, errs = &deadline, append(errs, err)
	}
	fallback := in.Default
	if fallback == nil {
		fallback = value.Null()
	}
	t, err := names.tree(fallback, "/default")
	q.fallback, errs = &t, append(errs, err)
	switch {
	case in.Default != nil && in.Deadline == "":
		errs = append(errs, &value.Error{Path: "/default", Reason: "a default answers at a deadline, and there is none: set deadline, or leave default out"})
	case in.Deadline != "" && schema != nil && t.fixed != nil && schema.Validate(t.fixed) != nil:
		errs = append(errs, &value.Error{Path: "/default", Reason: "the default, null when there is none, does not fit the schema: it answers at the deadline"})
	}
	return q, errors.Join(errs...)
}

func (q *question) run(_ context.Context, call *node.Call) (map[string]value.Value, error) {
	if len(call.Answers) > 0 {
		return nil, nil
	}
	prompt, err := q.prompt.value(call.Reads)
	if err != nil {
		return nil, err
	}
	out := node.Question{Prompt: prompt, Field: q.into, Schema: q.schema}
	if q.deadline != nil {
		if out.Deadline, err = q.deadline.of(call); err != nil {
			return nil, err
		}
		fallback, err := q.fallback.value(call.Reads)
		if err != nil {
			return nil, err
		}
		out.Default = fallback
	}
	return nil, node.Ask(out)
}
