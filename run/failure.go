package run

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/value"
)

// Failure codes. Nodes may use codes of their own.
const (
	CodeError         = "node_error"
	CodePanic         = "node_panic"
	CodeTimeout       = "node_timeout"
	CodeInvalidUpdate = "invalid_update"          // an update that is not declared, or does not fit its schema
	CodeInvalidAsk    = "invalid_interrupt"       // a question that cannot be asked
	CodeGuard         = "guard_failed"            // details name the edge
	CodeReducer       = "reducer_failed"          // details name the field
	CodeSupersteps    = "max_supersteps_exceeded" // the graph's bound is used up
	CodeTooLarge      = "too_large"               // a value, a text, an event or the document is over its limit
)

// settled is a node's failure in a form that can be stored, whatever it held. It is
// not whole when a text was over MaxText: the failure is then about that, and permanent.
func settled(node string, f Failure) (stored Failure, whole bool) {
	if len(f.Code) > claim.MaxID {
		return overlong(node, "failure code", f.Code, ""), false
	}
	if len(f.Message) > MaxText {
		return overlong(node, "error text", f.Message, storable(f.Code)), false
	}
	f.Node, f.Code, f.Message = node, storable(f.Code), storable(f.Message)
	if f.Code == "" {
		f.Code = CodeError
	}
	if f.Message == "" {
		f.Message = "the node gave no error text"
	}
	if len(f.Details) == 0 {
		f.Details = nil
	} else if details, err := value.Canonical(f.Details); err == nil {
		f.Details = details
	} else {
		f.Details, _ = jsontext.AppendQuote(nil, storable(string(f.Details)))
	}
	return f, true
}

// about names the part of the graph that a failure of the whole superstep is about.
func about(member, name string) value.Value {
	b, _ := jsontext.AppendQuote([]byte(`{"`+member+`":`), name)
	return append(b, '}')
}
