// A path outside of belay's, so that Go itself refuses the packages that are internal to belay.
module example.com/kv

go 1.26.0

require (
	github.com/belay-run/belay v0.0.0
	github.com/oklog/ulid/v2 v2.1.2
	go.etcd.io/bbolt v1.5.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/expr-lang/expr v1.17.8 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/looplab/fsm v1.0.3 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/belay-run/belay => ../..
