package belay_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func badNode() map[string][]bad {
	type none struct{}
	fine := func(context.Context, none) (none, error) { return none{}, nil }
	prepare := func(node.Site) (node.Func, error) { return nil, nil }
	// executed is what a run comes to whose node does this.
	executed := func(name string, do func(ctx context.Context) error, says string) bad {
		return bad{name, func(w *world) error {
			r := w.finished(node.Of("work", 1, func(ctx context.Context, _ person) (message, error) { return message{}, do(ctx) }))
			if r.Failure == nil {
				return nil
			}
			return &failed{r.Failure}
		}, &failed{}, says}
	}
	return map[string][]bad{
		"node.Of": {
			{"no name", func(*world) error { return node.Of("", 1, fine).Err() }, node.ErrInvalidType, "name"},
			{"version 0", func(*world) error { return node.Of("a", 0, fine).Err() }, node.ErrInvalidType, "version"},
			{"a nil function", func(*world) error { return node.Of[none, none]("a", 1, nil).Err() }, node.ErrInvalidType, "nil"},
			{"an input that has no schema", func(*world) error {
				return node.Of("a", 1, func(context.Context, chan int) (none, error) { return none{}, nil }).Err()
			}, node.ErrInvalidType, "chan"},
			{"a nil option", func(*world) error { return node.Of("a", 1, fine, nil).Err() }, node.ErrInvalidType, "option"},
		},
		"node.Configured": {
			{"a nil function", func(*world) error { return node.Configured[none, none, none]("a", 1, nil).Err() }, node.ErrInvalidType, "nil"},
			{"a config that has no schema", func(*world) error {
				return node.Configured("a", 1, func(context.Context, chan int, none) (none, error) { return none{}, nil }).Err()
			}, node.ErrInvalidType, "chan"},
		},
		"node.Raw": {
			{"a nil function", func(*world) error { return node.Raw(graph.NodeType{Name: "a", Version: 1}, nil).Err() }, node.ErrInvalidType, "nil"},
			{"a config schema that is none", func(*world) error {
				return node.Raw(graph.NodeType{Name: "a", Version: 1, Config: value.Value("7")}, prepare).Err()
			}, node.ErrInvalidType, "config"},
		},
		"node.Accepts": {
			{"a version that is not older", func(*world) error {
				return node.Of("a", 2, fine, node.Accepts(2, func(c value.Value) (value.Value, error) { return c, nil })).Err()
			}, node.ErrInvalidType, "accepts"},
			{"a nil upgrade", func(*world) error { return node.Of("a", 2, fine, node.Accepts(1, nil)).Err() }, node.ErrInvalidType, "nil"},
		},
		"node.Timeout": {
			{"none", func(*world) error { return node.Of("a", 1, fine, node.Timeout(0)).Err() }, node.ErrInvalidType, "positive"},
			{"nanoseconds", func(*world) error { return node.Of("a", 1, fine, node.Timeout(1)).Err() }, node.ErrInvalidType, "microseconds"},
		},
		"node.Type.Err":     {{"the zero type", func(*world) error { return node.Type{}.Err() }, node.ErrInvalidType, "node.Of"}},
		"node.Registry.Add": {{"the same twice", func(*world) error { return node.NewRegistry().Add(node.Of("a", 1, fine), node.Of("a", 1, fine)).Err() }, node.ErrInvalidType, "already"}},
		"node.Registry.Err": {{"a bad type", func(*world) error { return node.NewRegistry().Add(node.Type{}).Err() }, node.ErrInvalidType, ""}},
		"node.Registry.Prepare": {
			{"no graph", func(w *world) error { _, err := w.nodes().Prepare(nil, 0); return err }, node.ErrNilArgument, "graph"},
			{"an unknown node type", func(w *world) error { _, err := node.NewRegistry().Prepare(w.compiled(), 0); return err }, node.ErrIncompatible, "work"},
		},
		"node.Prepared.Run": {
			{"no call", func(w *world) error {
				_, err := must[*node.Prepared](w)(w.nodes().Prepare(w.compiled(), 0)).Run(w.ctx, nil)
				return err
			}, node.ErrNilArgument, "call"},
		},
		"node.Prepared.RunHere": {
			{"no call", func(w *world) error {
				_, err := must[*node.Prepared](w)(w.nodes().Prepare(w.compiled(), 0)).RunHere(w.ctx, nil, func(run.Result, error) {})
				return err
			}, node.ErrNilArgument, "call"},
			{"nothing to do when the goroutine ends", func(w *world) error {
				_, err := must[*node.Prepared](w)(w.nodes().Prepare(w.compiled(), 0)).RunHere(w.ctx, &node.Call{Node: "work"}, nil)
				return err
			}, node.ErrNilArgument, "goroutine"},
		},
		"node.Ask": {
			executed("a prompt that is no JSON", func(context.Context) error { return node.Ask(node.Question{Prompt: func() {}}) }, "prompt"),
			executed("a schema that is none", func(context.Context) error { return node.Ask(node.Question{Schema: value.Value("{")}) }, "schema"),
			executed("a field it does not write", func(context.Context) error { return node.Ask(node.Question{Field: "name"}) }, "name"),
		},
		"node.Snooze": {executed("no instant", func(context.Context) error { return node.Snooze(zeroTime) }, "zero time")},
		"node.Answered": {{"a type the answer does not fit", func(w *world) error {
			var got error
			e := w.engineWith(node.Of("work", 1, func(ctx context.Context, _ person) (message, error) {
				if _, ok, err := node.Answered[int](ctx, "q"); err != nil || ok {
					got = err
					return message{}, err
				}
				return message{}, node.Ask(node.Question{ID: "q"})
			}))
			must[*belay.Run](w)(e.Resolve(w.ctx, "r", "q", "text"))
			must[belay.Drained](w)(e.Drain(w.ctx, belay.DrainOptions{}))
			return got
		}, value.ErrInvalid, "q"}},
		"node.WithDetails": {executed("details that are no JSON", func(context.Context) error {
			return node.Permanent(node.WithDetails(errors.New("failed"), func() {}))
		}, "failed")},
		"std.Register": {{"the built-in types twice", func(w *world) error { return registerTwice() }, node.ErrInvalidType, "already"}},
	}
}

// engineWith is an engine on which the run "r" of the world's graph was driven with another node.
func (w *world) engineWith(work node.Type) *belay.Engine {
	e := must[*belay.Engine](w)(belay.New(belay.Config{Backend: memory.New(memory.Options{}), Nodes: node.NewRegistry().Add(work), Logger: quiet}))
	ref := must[belay.GraphRef](w)(e.Publish(w.ctx, w.document()))
	must[*belay.Run](w)(e.Start(w.ctx, ref, person{"Ada"}, belay.StartOptions{ID: "r"}))
	must[belay.Drained](w)(e.Drain(w.ctx, belay.DrainOptions{}))
	return e
}

func (w *world) finished(work node.Type) *run.Document {
	return must[*run.Document](w)(w.engineWith(work).Fetch(w.ctx, "r"))
}

// client is the cases that every operation of a client refuses.
func client(call func(w *world, ctx context.Context, c *belay.Client) error) []bad {
	return []bad{
		{"a nil context", func(w *world) error {
			e, _ := w.engine()
			return call(w, nil, &e.Client)
		}, errArgument, "context.Background()"},
		{"an empty tenant", func(w *world) error {
			e, _ := w.engine()
			return call(w, w.ctx, e.For(""))
		}, errArgument, "tenant"},
		{"a client of no engine", func(w *world) error { return call(w, w.ctx, &belay.Client{}) }, errArgument, "client"},
		{"a nil client", func(w *world) error { return call(w, w.ctx, nil) }, errArgument, "client"},
	}
}

// clientRun is those of an operation on one run.
func clientRun(call func(ctx context.Context, c *belay.Client, id string) error) []bad {
	cases := client(func(_ *world, ctx context.Context, c *belay.Client) error { return call(ctx, c, "r") })
	cases = append(cases, ids("run id", errArgument, func(w *world, id string) error {
		e, _ := w.engine()
		return call(w.ctx, &e.Client, id)
	})...)
	return append(cases,
		bad{"an unknown run", func(w *world) error { e, _ := w.engine(); return call(w.ctx, &e.Client, "nobody") }, belay.ErrNotFound, "nobody"},
		bad{"another owner's run", func(w *world) error { e, _ := w.engine(); return call(w.ctx, e.For("acme"), "r") }, belay.ErrNotFound, "whose"})
}

func badEngine() map[string][]bad {
	start := func(name string, is error, says string, input any, spoil func(ref *belay.GraphRef, o *belay.StartOptions)) bad {
		return bad{name, func(w *world) error {
			e, ref := w.engine()
			var o belay.StartOptions
			if spoil != nil {
				spoil(&ref, &o)
			}
			_, err := e.Start(w.ctx, ref, input, o)
			return err
		}, is, says}
	}
	ada := person{"Ada"}
	// startWays are the cases of what every start refuses in the same way.
	startWays := func(way func(w *world, e *belay.Engine, ref belay.GraphRef, input any, o belay.StartOptions) error) []bad {
		one := func(name string, is error, says string, input any, o belay.StartOptions) bad {
			return bad{name, func(w *world) error {
				e, ref := w.engine()
				return way(w, e, ref, input, o)
			}, is, says}
		}
		return []bad{
			one("no input", belay.ErrInvalidInput, "/name", nil, belay.StartOptions{}),
			one("an input that is no JSON", belay.ErrInvalidInput, "func", func() {}, belay.StartOptions{}),
			one("an oversized id", errArgument, "run id", ada, belay.StartOptions{ID: strings.Repeat("x", 256)}),
			one("a taken id", belay.ErrConflict, "another id", ada, belay.StartOptions{ID: "r"}),
			one("an oversized start key", errArgument, "start key", ada, belay.StartOptions{Key: strings.Repeat("x", 256)}),
			one("a window without a key", errArgument, "set Key", ada, belay.StartOptions{Window: time.Hour}),
			{"no graph", func(w *world) error {
				e, _ := w.engine()
				return way(w, e, belay.GraphRef{}, ada, belay.StartOptions{})
			}, errArgument, "graph id"},
			{"an unknown graph", func(w *world) error {
				e, _ := w.engine()
				return way(w, e, belay.GraphRef{ID: "none"}, ada, belay.StartOptions{})
			}, belay.ErrNotFound, "publish"},
		}
	}
	badConfigs := []bad{
		{"nothing", func(*world) error { _, err := belay.New(belay.Config{}); return err }, belay.ErrInvalidConfig, "Backend is nil"},
		{"bad node types", func(w *world) error {
			_, err := belay.New(belay.Config{Backend: memory.New(memory.Options{}), Nodes: w.nodes().Add(node.Type{})})
			return err
		}, node.ErrInvalidType, "Nodes"},
		{"a negative TTL", func(w *world) error {
			_, err := belay.New(belay.Config{Backend: memory.New(memory.Options{}), Nodes: w.nodes(), TTL: -1})
			return err
		}, belay.ErrInvalidConfig, "TTL"},
	}
	cases := map[string][]bad{
		"belay.New":     badConfigs,
		"lifecycle.New": badConfigs,
		"belay.ReadGraph": {
			{"no file", func(*world) error { _, err := belay.ReadGraph(""); return err }, belay.ErrUnreadableGraph, ""},
			{"a directory", func(*world) error { _, err := belay.ReadGraph("testdata"); return err }, belay.ErrUnreadableGraph, "testdata"},
			{"no graph", func(*world) error { _, err := belay.ReadGraph("go.mod"); return err }, belay.ErrUnreadableGraph, "go.mod"},
		},
		"belay.ParseGraph": {
			{"nothing", func(*world) error { _, err := belay.ParseGraph(nil); return err }, belay.ErrUnreadableGraph, ""},
			{"no graph", func(*world) error { _, err := belay.ParseGraph([]byte("colour: red")); return err }, belay.ErrUnreadableGraph, "/colour"},
		},
		"belay.CheckGraph": {
			{"no file", func(w *world) error { _, err := belay.CheckGraph("", w.nodes()); return err }, belay.ErrUnreadableGraph, ""},
			{"a directory", func(w *world) error { _, err := belay.CheckGraph("testdata", w.nodes()); return err }, belay.ErrUnreadableGraph, "testdata"},
		},
		"belay.Compat":     badCompat(belay.Compat),
		"lifecycle.Compat": badCompat(lifecycle.Compat),
		"lifecycle.Engine.For": ids("tenant", errArgument, func(w *world, id string) error {
			e, _ := w.engine()
			_, err := e.For(id).Fetch(w.ctx, "r")
			return err
		}),
		"lifecycle.Engine.Drain": append(ids("run id", errArgument, func(w *world, id string) error {
			e, _ := w.engine()
			_, err := e.Drain(w.ctx, belay.DrainOptions{Runs: []string{id}})
			return err
		}), bad{"a nil context", func(w *world) error {
			e, _ := w.engine()
			var ctx context.Context
			_, err := e.Drain(ctx, belay.DrainOptions{})
			return err
		}, errArgument, "context.Background()"}),

		"lifecycle.Client.StartMany": append(client(func(w *world, ctx context.Context, c *belay.Client) error {
			_, err := c.StartMany(ctx, w.compiled().Ref(), nil)
			return err
		}), startWays(func(w *world, e *belay.Engine, ref belay.GraphRef, input any, o belay.StartOptions) error {
			started, err := e.StartMany(w.ctx, ref, []belay.NewRun{{Input: ada}, {Input: input, StartOptions: o}})
			if err != nil {
				return err
			}
			if started[0].Err != nil {
				return started[0].Err
			}
			return started[1].Err
		})...),
		"lifecycle.Client.StartIn": append(append(client(func(w *world, ctx context.Context, c *belay.Client) error {
			_, err := c.StartIn(ctx, memory.New(memory.Options{}), w.compiled().Ref(), ada, belay.StartOptions{})
			return err
		}), startWays(func(w *world, e *belay.Engine, ref belay.GraphRef, input any, o belay.StartOptions) error {
			_, err := e.StartIn(w.ctx, w.store, ref, input, o)
			return err
		})...), bad{"no transaction", func(w *world) error {
			e, ref := w.engine()
			_, err := e.StartIn(w.ctx, nil, ref, ada, belay.StartOptions{})
			return err
		}, errArgument, "WithTx"}),
		"lifecycle.Engine.Run": {
			{"a nil context", func(w *world) error {
				e, _ := w.engine()
				var ctx context.Context
				return e.Run(ctx)
			}, errArgument, "context.Background()"},
			{"an engine of no New", func(w *world) error { return new(belay.Engine).Run(w.ctx) }, errArgument, "New"},
			{"after a shutdown", func(w *world) error {
				e, _ := w.engine()
				if err := e.Shutdown(w.ctx); err != nil {
					return err
				}
				return e.Run(w.ctx)
			}, belay.ErrStopped, "make another"},
		},
		"lifecycle.Engine.Shutdown": {
			{"a nil context", func(w *world) error {
				e, _ := w.engine()
				var ctx context.Context
				return e.Shutdown(ctx)
			}, errArgument, "context.Background()"},
			{"an engine of no New", func(w *world) error { return new(belay.Engine).Shutdown(w.ctx) }, errArgument, "New"},
		},

		"lifecycle.Client.Fetch":   clientRun(func(ctx context.Context, c *belay.Client, id string) error { _, err := c.Fetch(ctx, id); return err }),
		"lifecycle.Client.Inspect": clientRun(func(ctx context.Context, c *belay.Client, id string) error { _, err := c.Inspect(ctx, id); return err }),
		"lifecycle.Client.Await":   clientRun(func(ctx context.Context, c *belay.Client, id string) error { _, err := c.Await(ctx, id); return err }),
		"lifecycle.Client.RetryPoisoned": clientRun(func(ctx context.Context, c *belay.Client, id string) error {
			_, err := c.RetryPoisoned(ctx, id)
			return err
		}),
		"lifecycle.Client.Cancel": append(clientRun(func(ctx context.Context, c *belay.Client, id string) error {
			_, err := c.Cancel(ctx, id, "")
			return err
		}),
			bad{"an endless reason", func(w *world) error {
				e, _ := w.engine()
				_, err := e.Cancel(w.ctx, "r", strings.Repeat("x", run.MaxReason+1))
				return err
			}, errArgument, "shorten it"}),
		"lifecycle.Client.Events": append(append(clientRun(func(ctx context.Context, c *belay.Client, id string) error {
			_, err := c.Events(ctx, id, backend.EventQuery{Limit: 1})
			return err
		}), limits(func(w *world, limit int) error {
			e, _ := w.engine()
			_, err := e.Events(w.ctx, "r", backend.EventQuery{Limit: limit})
			return err
		})...), bad{"a negative position", func(w *world) error {
			e, _ := w.engine()
			_, err := e.Events(w.ctx, "r", backend.EventQuery{After: -1, Limit: 1})
			return err
		}, errArgument, "after"}),
		"lifecycle.Client.List": append(client(func(_ *world, ctx context.Context, c *belay.Client) error {
			_, err := c.List(ctx, backend.Query{Limit: 1})
			return err
		}), queries(func(w *world, s backend.Scope, q backend.Query) error {
			e, _ := w.engine()
			_, err := e.List(w.ctx, q)
			return err
		})[3:]...), // a client chooses the scope
		"lifecycle.Client.Migrate": append(append(clientRun(func(ctx context.Context, c *belay.Client, id string) error {
			_, err := c.Migrate(ctx, id, belay.GraphRef{ID: "g"}, belay.MigrateOptions{})
			return err
		}), ids("graph id", errArgument, func(w *world, id string) error {
			e, _ := w.engine()
			_, err := e.Migrate(w.ctx, "r", belay.GraphRef{ID: id}, belay.MigrateOptions{})
			return err
		})...),
			bad{"a version that is not there", func(w *world) error {
				e, _ := w.engine()
				_, err := e.Migrate(w.ctx, "r", belay.GraphRef{ID: "nothing", Hash: "beef"}, belay.MigrateOptions{})
				return err
			}, backend.ErrNotFound, "publish"}),
		"lifecycle.Client.Resolve": append(append(clientRun(func(ctx context.Context, c *belay.Client, id string) error {
			_, err := c.Resolve(ctx, id, "q", "x")
			return err
		}), ids("interrupt id", errArgument, func(w *world, id string) error {
			e, _ := w.engine()
			_, err := e.Resolve(w.ctx, "r", id, "x")
			return err
		})...),
			bad{"an unknown interrupt", func(w *world) error { e, _ := w.engine(); _, err := e.Resolve(w.ctx, "r", "p", 1); return err }, run.ErrNoInterrupt, "p"},
			bad{"an answer that is no JSON", func(w *world) error { e, _ := w.engine(); _, err := e.Resolve(w.ctx, "r", "q", func() {}); return err }, run.ErrInvalidAnswer, "func"},
			bad{"an answer of 17 MiB", func(w *world) error {
				e, _ := w.engine()
				_, err := e.Resolve(w.ctx, "r", "q", strings.Repeat("x", 17<<20))
				return err
			}, run.ErrInvalidAnswer, "limit"},
		),
		"lifecycle.Client.Publish": append(client(func(w *world, ctx context.Context, c *belay.Client) error {
			_, err := c.Publish(ctx, w.document())
			return err
		}),
			bad{"no graph", func(w *world) error { e, _ := w.engine(); _, err := e.Publish(w.ctx, nil); return err }, errArgument, "graph"},
			bad{"a node that writes an input", func(w *world) error {
				e, _ := w.engine()
				d := w.document()
				d.Nodes["work"] = graph.Node{Use: "work", Writes: map[string]string{"text": "name"}}
				_, err := e.Publish(w.ctx, d)
				return asDiagnosed{err}
			}, diagnosed{}, "/nodes/work/writes"}),
		"lifecycle.Client.Start": append(client(func(w *world, ctx context.Context, c *belay.Client) error {
			_, err := c.Start(ctx, w.compiled().Ref(), ada, belay.StartOptions{})
			return err
		}),
			start("no graph", errArgument, "graph id", ada, func(ref *belay.GraphRef, _ *belay.StartOptions) { *ref = belay.GraphRef{} }),
			start("an unknown graph", belay.ErrNotFound, "publish", ada, func(ref *belay.GraphRef, _ *belay.StartOptions) { *ref = belay.GraphRef{ID: "none"} }),
			start("an unknown version", belay.ErrNotFound, "publish", ada, func(ref *belay.GraphRef, _ *belay.StartOptions) { ref.Hash = "none" }),
			start("no input", belay.ErrInvalidInput, "/name", nil, nil),
			start("an input that is no object", belay.ErrInvalidInput, "object", []int{1}, nil),
			start("an input that is no JSON", belay.ErrInvalidInput, "func", func() {}, nil),
			start("invalid UTF-8", belay.ErrInvalidInput, "/name", person{"\xff"}, nil),
			start("an unknown input", belay.ErrInvalidInput, "/nmae", map[string]string{"name": "Ada", "nmae": "x"}, nil),
			start("17 MiB of input", value.ErrTooLarge, "limit", person{strings.Repeat("x", 17<<20)}, nil),
			start("an oversized id", errArgument, "run id", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.ID = strings.Repeat("x", 256) }),
			start("an id with NUL", errArgument, "run id", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.ID = "a\x00" }),
			start("a taken id", belay.ErrConflict, "another id", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.ID = "r" }),
			start("an oversized start key", errArgument, "start key", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.Key = strings.Repeat("x", 256) }),
			start("a negative window", errArgument, "window", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.Key, o.Window = "k", -1 }),
			start("a window without a key", errArgument, "set Key", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.Window = time.Hour }),
			start("metadata that is no UTF-8", errArgument, "metadata", ada, func(_ *belay.GraphRef, o *belay.StartOptions) { o.Metadata = map[string]string{"a": "\xff"} }),
		),
	}
	return cases
}

// registerTwice registers the built-in node types twice in one registry.
func registerTwice() error { return std.Register(std.Register(node.NewRegistry())).Err() }

func badCompat(compat func(context.Context, backend.Store, *node.Registry, belay.CompatOptions) ([]belay.Compatibility, error)) []bad {
	call := func(ctx context.Context, store backend.Store, nodes *node.Registry, opts belay.CompatOptions) error {
		_, err := compat(ctx, store, nodes, opts)
		return err
	}
	return []bad{
		{"a nil context", func(w *world) error {
			var none context.Context
			return call(none, memory.New(memory.Options{}), w.nodes(), belay.CompatOptions{})
		}, errArgument, "ctx"},
		{"no store", func(w *world) error { return call(w.ctx, nil, w.nodes(), belay.CompatOptions{}) }, errArgument, "store"},
		{"no nodes", func(w *world) error { return call(w.ctx, memory.New(memory.Options{}), nil, belay.CompatOptions{}) }, errArgument, "nodes"},
		{"a bad registry", func(w *world) error {
			return call(w.ctx, memory.New(memory.Options{}), node.NewRegistry().Add(node.Type{}), belay.CompatOptions{})
		}, node.ErrInvalidType, "zero Type"},
		{"a negative timeout", func(w *world) error {
			return call(w.ctx, memory.New(memory.Options{}), w.nodes(), belay.CompatOptions{MaxNodeTimeout: -1})
		}, errArgument, "MaxNodeTimeout"},
	}
}
