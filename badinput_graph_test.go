package belay_test

import (
	"encoding/json"
	"strings"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// diagnosed matches every graph.Diagnostics, which are a list and no sentinel.
type diagnosed struct{}

func (diagnosed) Error() string { return "graph.Diagnostics" }

// asDiagnosed lets errors.Is find that an error is, or wraps, graph.Diagnostics.
type asDiagnosed struct{ error }

func (e asDiagnosed) Unwrap() error { return e.error }

func (e asDiagnosed) Is(target error) bool {
	_, wanted := target.(diagnosed)
	return wanted && findDiagnostics(e.error)
}

func badGraph() map[string][]bad {
	text := strings.Replace(worldGraph, "id: world", "id: world\ncolour: red", 1)
	const large = 17 << 20
	texts := func(call func(raw []byte) error, wrong string) []bad {
		return []bad{
			{"nothing", func(*world) error { return asDiagnosed{call(nil)} }, diagnosed{}, ""},
			{"a list", func(*world) error { return asDiagnosed{call([]byte("[]"))} }, diagnosed{}, "object"},
			{"an unknown field", func(*world) error { return asDiagnosed{call([]byte(wrong))} }, diagnosed{}, "/colour"},
			{"17 MiB", func(*world) error { return call(make([]byte, large)) }, value.ErrTooLarge, "limit"},
		}
	}
	publish := func(name, says string, spoil func(d *graph.Document)) bad {
		return bad{name, func(w *world) error {
			d := w.document()
			spoil(d)
			_, err := graph.Publish(d, w.nodes())
			return asDiagnosed{err}
		}, diagnosed{}, says}
	}
	asJSON := `{"id":"a","nodes":{},"edges":{},"colour":"red"}`
	duration := func(name, text, says string) bad {
		return bad{name, func(*world) error { _, err := graph.ParseDuration(text); return err }, value.ErrInvalid, says}
	}
	factor := func(name, text string) bad {
		return bad{name, func(*world) error { _, err := graph.ParseThousandths(text); return err }, value.ErrInvalid, "factor"}
	}
	expression := func(name, source, says string) bad {
		return bad{name, func(*world) error { _, err := graph.CompileExpression(source, nil); return err }, graph.ErrExpression, says}
	}
	eval := func(w *world, source string, values map[string]value.Value) error {
		_, err := must[*graph.Expression](w)(graph.CompileExpression(source, graph.Variables{"a": nil})).Eval(values)
		return err
	}
	field := func(w *world) *graph.Channel { return w.compiled().Channel("text") }
	return map[string][]bad{
		"graph.Parse":     texts(func(raw []byte) error { _, err := graph.Parse(raw); return err }, asJSON),
		"graph.ParseYAML": texts(func(raw []byte) error { _, err := graph.ParseYAML(raw); return err }, text),
		"graph.Document.UnmarshalJSON": {
			{"an unknown field", func(*world) error { return asDiagnosed{json.Unmarshal([]byte(asJSON), &graph.Document{})} }, diagnosed{}, "/colour"},
		},
		"graph.Check": {
			{"an unknown field", func(w *world) error { return asDiagnosed{graph.Check([]byte(asJSON), w.nodes())} }, diagnosed{}, "/colour"},
			{"17 MiB", func(w *world) error { return asDiagnosed{graph.Check(make([]byte, large), w.nodes())} }, diagnosed{}, "limit"},
		},
		"graph.CheckYAML": {
			{"an unknown field", func(w *world) error { return asDiagnosed{graph.CheckYAML([]byte(text), w.nodes())} }, diagnosed{}, "/colour"},
			{"17 MiB", func(w *world) error { return asDiagnosed{graph.CheckYAML(make([]byte, large), w.nodes())} }, diagnosed{}, "limit"},
		},
		"graph.Publish": {
			{"no document", func(w *world) error { _, err := graph.Publish(nil, w.nodes()); return asDiagnosed{err} }, diagnosed{}, "document"},
			{"no catalog", func(w *world) error { _, err := graph.Publish(w.document(), nil); return asDiagnosed{err} }, diagnosed{}, "/nodes/work/use"},
			publish("an empty id", "/id", func(d *graph.Document) { d.ID = "" }),
			publish("an id that is no identifier", "/id", func(d *graph.Document) { d.ID = "a b" }),
			publish("a node that writes an input", "/nodes/work/writes", func(d *graph.Document) {
				n := d.Nodes["work"]
				n.Writes = map[string]string{"text": "name"}
				d.Nodes["work"] = n
			}),
			publish("a read of what is not declared", "/nodes/work/reads", func(d *graph.Document) {
				n := d.Nodes["work"]
				n.Reads = map[string]string{"name": "nmae"}
				d.Nodes["work"] = n
			}),
			publish("an edge to nowhere", "/edges/out/to", func(d *graph.Document) {
				d.Edges["out"] = graph.Edge{From: graph.Sources{"work"}, To: "nowhere"}
			}),
			publish("a guard that does not compile", "/edges/out/when", func(d *graph.Document) {
				d.Edges["out"] = graph.Edge{From: graph.Sources{"work"}, To: graph.Finish, When: "state."}
			}),
			publish("a schema that is none", "/inputs/name/schema", func(d *graph.Document) { d.Inputs["name"] = graph.Input{Schema: value.Value(`7`)} }),
			publish("invalid UTF-8", "", func(d *graph.Document) { d.Inputs["na\xffme"] = graph.Input{Schema: value.Value(`{}`)} }),
			publish("an unknown node type", "/nodes/work/use", func(d *graph.Document) { d.Nodes["work"] = graph.Node{Use: "wrok"} }),
		},
		"graph.Load": {
			{"other bytes", func(w *world) error { _, err := graph.Load(w.compiled().Ref(), []byte("{}")); return err }, graph.ErrDigest, ""},
			{"bytes that do not compile", func(w *world) error {
				raw := value.Value(`{"edges":{},"id":"a","nodes":{},"shape":"round"}`)
				_, err := graph.Load(graph.Ref{ID: "a", Hash: value.Hash(raw)}, raw)
				return err
			}, graph.ErrIncompatible, "/shape"},
		},
		"graph.ParseManifest": {
			{"nothing", func(*world) error { _, err := graph.ParseManifest(nil); return err }, graph.ErrManifest, ""},
			{"an unknown field", func(*world) error {
				_, err := graph.ParseManifest([]byte(`{"format":1,"nodes":[],"colour":"red"}`))
				return err
			}, graph.ErrManifest, "colour"},
			{"a newer format", func(*world) error { _, err := graph.ParseManifest([]byte(`{"format":99,"nodes":[]}`)); return err }, graph.ErrManifest, "99"},
		},
		"graph.NodeType.Valid": {
			{"no name", func(*world) error { return asDiagnosed{graph.NodeType{Version: 1}.Valid()} }, diagnosed{}, "/name"},
			{"version 0", func(*world) error { return asDiagnosed{graph.NodeType{Name: "a"}.Valid()} }, diagnosed{}, "/version"},
		},
		"graph.ParseDuration": {
			duration("no duration", "soon", "30s"), duration("a negative one", "-1s", "positive"), duration("nanoseconds", "1ns", "microsecond"),
		},
		"graph.Duration.UnmarshalJSON": {
			{"a number", func(*world) error { return new(graph.Duration).UnmarshalJSON([]byte("30")) }, value.ErrInvalid, "30s"},
			{"no duration", func(*world) error { return new(graph.Duration).UnmarshalJSON([]byte(`"soon"`)) }, value.ErrInvalid, "30s"},
		},
		"graph.Duration.MarshalJSON": {
			{"nanoseconds", func(*world) error { _, err := graph.Duration(1).MarshalJSON(); return err }, value.ErrInvalid, "microseconds"},
		},
		"graph.ParseThousandths": {
			factor("no number", "twice"), factor("four places", "1.2345"), factor("an exponent", "1e3"), factor("too many digits", "99999999999999999999"),
		},
		"graph.Thousandths.UnmarshalJSON": {
			{"a string", func(*world) error { return new(graph.Thousandths).UnmarshalJSON([]byte(`"2"`)) }, value.ErrInvalid, "factor"},
		},
		"graph.CompileExpression": {
			expression("nothing", "", ""), expression("half an expression", "1 +", "1 +"), expression("an unknown name", "b", "b"),
			expression("an unknown function", "now()", "now"),
		},
		"graph.Expression.Eval": {
			{"an index out of range", func(w *world) error { return eval(w, "a[3]", map[string]value.Value{"a": value.Value(`[1]`)}) }, graph.ErrExpression, ""},
			{"nil where a number is needed", func(w *world) error { return eval(w, "a > 1", nil) }, graph.ErrExpression, ""},
			{"a value that does not decode", func(w *world) error { return eval(w, "a", map[string]value.Value{"a": value.Value(`{`)}) }, graph.ErrExpression, ""},
		},
		"graph.CompiledEdge.Eval": {
			{"a state without the name", func(w *world) error {
				e := must[*graph.Compiled](w)(graph.Publish(must[*graph.Document](w)(graph.ParseYAML([]byte(strings.Replace(worldGraph, `state.name != ""`, `len(state.name) > 1`, 1)))), w.nodes()))
				_, err := e.EdgesFrom(graph.Start)[0].Eval(emptyState{})
				return err
			}, graph.ErrExpression, "in"},
		},
		"graph.Reducer.Fold": {
			{"text to add up", func(*world) error {
				_, err := graph.Reducer{Name: "sum"}.Fold(nil, []value.Value{value.Value(`"x"`)})
				return err
			}, graph.ErrReduce, "sum"},
			{"an overflow", func(*world) error {
				_, err := graph.Reducer{Name: "sum"}.Fold(value.Value("9223372036854775807"), []value.Value{value.Value(`1`)})
				return err
			}, graph.ErrReduce, "int64"},
			{"an unknown reducer", func(*world) error {
				_, err := graph.Reducer{Name: "average"}.Fold(nil, []value.Value{value.Value(`1`)})
				return err
			}, graph.ErrReduce, "average"},
		},
		"graph.Channel.CheckValue": {
			{"the wrong type", func(w *world) error { return field(w).CheckValue(value.Value("7")) }, value.ErrInvalid, "string"},
			{"nothing", func(w *world) error { return field(w).CheckValue(nil) }, value.ErrInvalid, ""},
		},
		"graph.Channel.CheckWrite": {
			{"the wrong type", func(w *world) error { return field(w).CheckWrite(value.Value("7")) }, value.ErrInvalid, "string"},
			{"nothing", func(w *world) error { return field(w).CheckWrite(nil) }, value.ErrInvalid, ""},
		},
		"graph.Channel.Fold": {
			{"the wrong type", func(w *world) error {
				_, err := field(w).Fold(nil, 0, []value.Value{value.Value("7")})
				return err
			}, value.ErrInvalid, "string"},
		},
	}
}

// emptyState holds nothing.
type emptyState struct{}

func (emptyState) Value(string) value.Value { return nil }
func (emptyState) Changed(string) bool      { return false }
func (emptyState) Version(string) int64     { return 0 }

func badRun() map[string][]bad {
	with := func(name, says string, spoil func(d *run.Document)) bad {
		return bad{name, func(w *world) error {
			d := *w.initial().Document
			spoil(&d)
			return d.Valid()
		}, run.ErrInvalidDocument, says}
	}
	encode := func(call func(d *run.Document) error) []bad {
		return []bad{
			{"no document", func(*world) error { return call(nil) }, run.ErrInvalidDocument, "nil"},
			{"text that is no UTF-8", func(w *world) error {
				d := *w.initial().Document
				d.Reason = "\xff"
				return call(&d)
			}, run.ErrInvalidDocument, "UTF-8"},
		}
	}
	migrated := func(w *world) *run.Document {
		d := *w.initial().Document
		d.Lineage = []run.Ancestor{{Hash: "h", Until: 1}}
		return &d
	}
	event := func(call func(e run.Event) error) []bad {
		return []bad{
			{"an empty event", func(*world) error { return call(run.Event{}) }, run.ErrInvalidEvent, ""},
			{"sequence 0", func(w *world) error {
				e := w.initial().Events[0]
				e.Seq = 0
				return call(e)
			}, run.ErrInvalidEvent, "seq"},
			{"an unknown type", func(w *world) error {
				e := w.initial().Events[0]
				e.Type = "party"
				return call(e)
			}, run.ErrInvalidEvent, "party"},
		}
	}
	settle := func(name string, result run.Result, is error, says string) bad {
		return bad{name, func(w *world) error {
			m, d := w.machine(), w.initial().Document
			plan := must[run.Plan](w)(m.Plan(d, epoch))
			_, err := m.Settle(d, plan, []run.Result{result}, epoch)
			return err
		}, is, says}
	}
	// fails is for what a node answers: no error of Settle's, but a failure of the run.
	fails := func(name string, result run.Result, says string) bad {
		return bad{name, func(w *world) error {
			p := w.settled(result)
			if p.Document.Failure == nil {
				return nil
			}
			return &failed{p.Document.Failure}
		}, &failed{}, says}
	}
	encoded := func(w *world) string { return string(must[[]byte](w)(run.Encode(w.initial().Document))) }
	return map[string][]bad{
		"run.Document.Valid": {
			with("nothing", "", func(d *run.Document) { *d = run.Document{} }),
			with("no id", "id", func(d *run.Document) { d.ID = "" }),
			with("a negative counter", "counter", func(d *run.Document) { d.Step = -1 }),
			with("a failure of a run that has not failed", "failure", func(d *run.Document) { d.Failure = &run.Failure{Code: "x"} }),
			with("output of a run that is not done", "output", func(d *run.Document) { d.Output = value.Value("{}") }),
		},
		"run.Encode": encode(func(d *run.Document) error { _, err := run.Encode(d); return err }),
		"run.EncodeAs": append(encode(func(d *run.Document) error { _, err := run.EncodeAs(d, 1); return err }),
			bad{"a lineage in format 1", func(w *world) error { _, err := run.EncodeAs(migrated(w), 1); return err }, run.ErrFormat, "not pinned"}),
		"run.CheckWritable":  {{"a lineage in format 1", func(w *world) error { return run.CheckWritable(migrated(w), 1) }, run.ErrFormat, "not pinned"}},
		"run.CheckFormat":    {{"a format of the future", func(*world) error { return run.CheckFormat(99) }, errArgument, "the formats 1 to"}},
		"run.AppendDocument": encode(func(d *run.Document) error { _, err := run.AppendDocument(nil, d); return err }),
		"run.Decode": {
			{"nothing", func(*world) error { _, err := run.Decode(nil); return err }, run.ErrInvalidDocument, ""},
			{"half a document", func(w *world) error { _, err := run.Decode([]byte(encoded(w)[:50])); return err }, run.ErrInvalidDocument, ""},
			{"an unknown field", func(w *world) error {
				_, err := run.Decode([]byte(strings.Replace(encoded(w), `"status":`, `"colour":"red","status":`, 1)))
				return err
			}, run.ErrFormat, "colour"},
			{"a newer format", func(w *world) error {
				_, err := run.Decode([]byte(strings.Replace(encoded(w), `"format":2`, `"format":99`, 1)))
				return err
			}, run.ErrFormat, "99"},
		},
		"run.Event.Valid": event(func(e run.Event) error { return e.Valid() }),
		"run.CheckDocumentSize": {{"one byte over the limit", func(w *world) error {
			return run.CheckDocumentSize(w.initial().Document, len(encoded(w))-1)
		}, value.ErrTooLarge, "keep large data elsewhere"}},
		"run.CheckEventSize": {{"an event over the limit", func(w *world) error {
			return run.CheckEventSize(&w.initial().Events[0], 10)
		}, value.ErrTooLarge, "keep large data elsewhere"}},
		"run.EncodeEvent": event(func(e run.Event) error { _, err := run.EncodeEvent(e); return err }),
		"run.AppendEvent": event(func(e run.Event) error { _, err := run.AppendEvent(nil, &e); return err }),
		"run.DecodeEvent": {
			{"nothing", func(*world) error { _, err := run.DecodeEvent(nil); return err }, run.ErrInvalidEvent, ""},
			{"half an event", func(*world) error { _, err := run.DecodeEvent([]byte(`{"run":`)); return err }, run.ErrInvalidEvent, ""},
		},

		"run.NewMachine": {{"no graph", func(*world) error {
			_, err := run.NewMachine(nil, value.Limits{}).Init(run.Initial{Run: "r"}, epoch)
			return err
		}, errArgument, "graph"}},
		"run.Machine.Init": append(ids("run id", errArgument, func(w *world, id string) error {
			_, err := w.machine().Init(run.Initial{Run: id, Input: value.Value(`{"name":"Ada"}`)}, epoch)
			return err
		}),
			bad{"no instant", func(w *world) error {
				_, err := w.machine().Init(run.Initial{Run: "r"}, zeroTime)
				return err
			}, errArgument, "now"},
			bad{"no input", func(w *world) error { _, err := w.machine().Init(run.Initial{Run: "r"}, epoch); return err }, run.ErrInvalidInput, "/name"},
			bad{"an unknown input", func(w *world) error {
				_, err := w.machine().Init(run.Initial{Run: "r", Input: value.Value(`{"name":"Ada","text":"x"}`)}, epoch)
				return err
			}, run.ErrInvalidInput, "/text"},
			bad{"an input that is no object", func(w *world) error {
				_, err := w.machine().Init(run.Initial{Run: "r", Input: value.Value(`7`)}, epoch)
				return err
			}, run.ErrInvalidInput, "object"},
			bad{"17 MiB of input", func(w *world) error {
				_, err := w.machine().Init(run.Initial{Run: "r", Input: value.Value(`{"name":"` + strings.Repeat("x", 17<<20) + `"}`)}, epoch)
				return err
			}, value.ErrTooLarge, "limit"},
			bad{"metadata that is no UTF-8", func(w *world) error {
				_, err := w.machine().Init(run.Initial{Run: "r", Input: value.Value(`{"name":"Ada"}`), Metadata: map[string]string{"a": "\xff"}}, epoch)
				return err
			}, errArgument, "metadata"},
		),
		"run.Machine.Plan": {
			{"no document", func(w *world) error { _, err := w.machine().Plan(nil, epoch); return err }, run.ErrInvalidDocument, "nil"},
			{"no instant", func(w *world) error { _, err := w.machine().Plan(w.initial().Document, zeroTime); return err }, errArgument, "now"},
			{"another graph's document", func(w *world) error {
				d := *w.initial().Document
				d.Graph.Hash = "other"
				_, err := w.machine().Plan(&d, epoch)
				return err
			}, run.ErrInvalidDocument, "other"},
		},
		"run.Machine.Settle": {
			settle("no result", run.Result{}, run.ErrInvalidResults, ""),
			settle("a result of another node", run.Completed("other", nil), run.ErrInvalidResults, "other"),
			{"no document", func(w *world) error { _, err := w.machine().Settle(nil, run.Plan{}, nil, epoch); return err }, run.ErrInvalidDocument, "nil"},
			{"no instant", func(w *world) error {
				_, err := w.machine().Settle(w.initial().Document, run.Plan{}, nil, zeroTime)
				return err
			}, errArgument, "now"},
			{"a plan without work", func(w *world) error {
				_, err := w.machine().Settle(w.initial().Document, run.Plan{}, nil, epoch)
				return err
			}, run.ErrInvalidResults, ""},
		},
		"run.Completed": {
			fails("a write of what the node does not write", run.Completed("work", map[string]value.Value{"name": value.Value(`"x"`)}), "name"),
			fails("a write of the wrong type", run.Completed("work", map[string]value.Value{"text": value.Value(`7`)}), "text"),
			fails("a write that is no JSON", run.Completed("work", map[string]value.Value{"text": value.Value(`{`)}), "text"),
			fails("17 MiB", run.Completed("work", map[string]value.Value{"text": value.Value(`"` + strings.Repeat("x", 17<<20) + `"`)}), "limit"),
		},
		"run.Ask": {
			fails("a field the node does not write", run.Ask("work", run.Question{Field: "name"}), "name"),
			fails("a schema that is none", run.Ask("work", run.Question{Schema: value.Value(`7`)}), "schema"),
			fails("a default that does not fit", run.Ask("work", run.Question{Schema: value.Value(`{"type":"string"}`), Deadline: epoch.Add(1), Default: value.Value("7")}), "default"),
		},
		"run.Skip":      {settle("an empty node", run.Skip("", "why"), run.ErrInvalidResults, "")},
		"run.Retry":     {settle("an empty node", run.Retry("", run.Failure{}, zeroTime), run.ErrInvalidResults, "")},
		"run.Permanent": {settle("an empty node", run.Permanent("", run.Failure{}), run.ErrInvalidResults, "")},
		"run.Machine.Migrate": {
			{"no document", func(w *world) error {
				_, _, err := w.machine().Migrate(nil, run.Migration{From: w.machine().Graph()}, epoch)
				return err
			}, run.ErrInvalidDocument, "nil"},
			{"no version that it has", func(w *world) error {
				_, _, err := w.machine().Migrate(w.asking(), run.Migration{}, epoch)
				return err
			}, errArgument, "from"},
			{"no instant", func(w *world) error {
				_, _, err := w.machine().Migrate(w.initial().Document, run.Migration{From: w.machine().Graph()}, zeroTime)
				return err
			}, errArgument, "now"},
			{"a version of another run", func(w *world) error {
				d := *w.initial().Document
				d.Graph.Hash = "other"
				_, _, err := w.machine().Migrate(&d, run.Migration{From: w.machine().Graph()}, epoch)
				return err
			}, run.ErrInvalidDocument, "belongs to"},
		},
		"run.Machine.Resolve": {
			{"no document", func(w *world) error { _, err := w.machine().Resolve(nil, "q", value.Null(), epoch); return err }, run.ErrInvalidDocument, "nil"},
			{"an unknown interrupt", func(w *world) error { _, err := w.machine().Resolve(w.asking(), "p", value.Null(), epoch); return err }, run.ErrNoInterrupt, "p"},
			{"no answer", func(w *world) error { _, err := w.machine().Resolve(w.asking(), "q", nil, epoch); return err }, run.ErrInvalidAnswer, "null"},
			{"half an answer", func(w *world) error {
				_, err := w.machine().Resolve(w.asking(), "q", value.Value("{"), epoch)
				return err
			}, run.ErrInvalidAnswer, ""},
			{"17 MiB", func(w *world) error {
				_, err := w.machine().Resolve(w.asking(), "q", value.Value(`"`+strings.Repeat("x", 17<<20)+`"`), epoch)
				return err
			}, run.ErrInvalidAnswer, "limit"},
			{"no instant", func(w *world) error {
				_, err := w.machine().Resolve(w.asking(), "q", value.Null(), zeroTime)
				return err
			}, errArgument, "now"},
		},
		"run.Cancel": {
			{"no document", func(*world) error { _, _, err := run.Cancel(nil, "", epoch); return err }, run.ErrInvalidDocument, "nil"},
			{"no instant", func(w *world) error { _, _, err := run.Cancel(w.initial().Document, "", zeroTime); return err }, errArgument, "now"},
			{"an endless reason", func(w *world) error {
				_, _, err := run.Cancel(w.initial().Document, strings.Repeat("x", run.MaxReason+1), epoch)
				return err
			}, errArgument, "shorten it"},
		},
	}
}

// failed is a run's failure as an error, for the table.
type failed struct{ *run.Failure }

func (f *failed) Error() string { return "belay: " + f.Code + ": " + f.Message }

func (*failed) Is(target error) bool { _, ok := target.(*failed); return ok }
