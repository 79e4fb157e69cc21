package belay_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// bad is one bad input of one entry point, and what the answer must be.
type bad struct {
	name string
	call func(w *world) error
	// is matches the typed error of the answer.
	is error
	// says is a part of the message: what is wrong, or what to do.
	says string
}

// libraries are the packages whose exported functions and methods TestBadInput knows.
var libraries = []string{
	".", "value", "claim", "checkpoint", "graph", "run", "node", "node/std", "backend", "backend/memory", "backend/seal", "lifecycle", "lifecycle/otel",
}

// elsewhere are the packages that it leaves out, each with the reason.
var elsewhere = map[string]string{
	"cmd":       "a program; its arguments are tested beside it",
	"examples":  "programs",
	"bench":     "a module of its own",
	"proptest":  "a test kit: bad input fails the test that gives it",
	"belaytest": "helpers of tests: bad input fails the test that gives it",
	// The operations of these make the checks of package backend, as the conformance suite
	// proves of each; how they are opened is tested beside them.
	"backend/sqlite":   "a backend of its own",
	"backend/postgres": "a backend of its own",
}

// TestBadInput gives bad input to every public entry point: the answer is a typed error that says
// what to do, nothing panics. The table is compared with the sources, so that an entry point
// without an entry fails the test.
//
// These need none: a function or method without parameters, unless it answers an error; the
// Is of an error type; and what noBadInput lists, with the reason why none of its input
// can be bad.
func TestBadInput(t *testing.T) {
	table := map[string][]bad{}
	for _, part := range []map[string][]bad{badPure(), badGraph(), badRun(), badNode(), badBackend(), badMemory(), badEngine()} {
		for name, cases := range part {
			if _, twice := table[name]; twice {
				t.Errorf("%s is listed twice", name)
			}
			table[name] = cases
		}
	}
	exported := exportedEntryPoints(t)
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		_, listed := table[name]
		_, excused := noBadInput[name]
		switch {
		case listed && excused:
			t.Errorf("%s has bad inputs and is listed as noBadInput", name)
		case !listed && !excused:
			t.Errorf("%s%s has no entry: give it bad inputs, or say in noBadInput why none of its input can be bad", name, exported[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if _, ok := exported[name]; !ok {
			t.Errorf("%s is listed and is not exported", name)
		}
		for _, c := range table[name] {
			t.Run(name+"/"+c.name, func(t *testing.T) { c.check(t) })
		}
	}
	for name, why := range noBadInput {
		if _, ok := exported[name]; !ok || why == "" {
			t.Errorf("%s is listed as noBadInput (%q) and is not exported, or has no reason", name, why)
		}
	}
}

func (c bad) check(t *testing.T) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panics: %v", r)
		}
	}()
	err := c.call(newWorld(t))
	switch {
	case err == nil:
		t.Fatal("accepted")
	case !errors.Is(err, c.is):
		t.Errorf("%v does not match %v", err, c.is)
	case !strings.Contains(err.Error(), c.says):
		t.Errorf("%v does not say %q", err, c.says)
	case !strings.Contains(err.Error(), "belay: "):
		t.Errorf("%v does not say whose it is", err)
	case len(err.Error()) > 4000:
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

// exportedEntryPoints finds, in the sources, every function and method that must have an entry,
// with its parameters.
func exportedEntryPoints(t *testing.T) map[string]string {
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "internal", "docs"}, d.Name())) {
			return fs.SkipDir
		}
		if _, skip := elsewhere[dir]; skip {
			return fs.SkipDir
		}
		names := entryPointsOf(t, dir)
		if len(names) > 0 && !slices.Contains(libraries, dir) {
			t.Errorf("the package %s is neither among the libraries nor elsewhere", dir)
		}
		maps.Copy(found, names)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func entryPointsOf(t *testing.T, dir string) map[string]string {
	found := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path.Join(dir, file.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				receiver := receiverOf(fn)
				if !ast.IsExported(receiver) {
					continue
				}
				name = receiver + "." + name
			}
			if needsEntry(fn) {
				found[parsed.Name.Name+"."+name] = parameters(fn)
			}
		}
	}
	return found
}

func receiverOf(fn *ast.FuncDecl) string {
	for expr := fn.Recv.List[0].Type; ; {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func needsEntry(fn *ast.FuncDecl) bool {
	if fn.Recv != nil && (fn.Name.Name == "Is" || fn.Name.Name == "Unwrap") {
		return false
	}
	if fn.Type.Params.NumFields() > 0 {
		return true
	}
	if fn.Type.Results != nil {
		for _, r := range fn.Type.Results.List {
			if id, ok := r.Type.(*ast.Ident); ok && id.Name == "error" {
				return true
			}
		}
	}
	return false
}

func parameters(fn *ast.FuncDecl) string {
	var names []string
	for _, field := range fn.Type.Params.List {
		for _, n := range field.Names {
			names = append(names, n.Name)
		}
	}
	return fmt.Sprintf("(%s)", strings.Join(names, ", "))
}

// Names that no identifier may have, each refused by claim.CheckID.
var badIDs = map[string]string{
	"an empty":       "",
	"an oversized":   strings.Repeat("x", 256),
	"a NUL in the":   "a\x00b",
	"invalid UTF-8:": "a\xffb",
}

// ids are the cases of an identifier that every operation refuses before it looks anything up.
func ids(what string, is error, call func(w *world, id string) error) []bad {
	var cases []bad
	for _, name := range slices.Sorted(maps.Keys(badIDs)) {
		id := badIDs[name]
		cases = append(cases, bad{name + " " + what, func(w *world) error { return call(w, id) }, is, what})
	}
	return cases
}

// noBadInput are the entry points none of whose input can be bad, each with the reason.
var noBadInput = map[string]string{
	"value.Equal":           "compares any bytes",
	"value.Hash":            "hashes any bytes",
	"value.Schema.Property": "a name the schema does not declare has no property",

	"backend.Cursor.MarshalText": "every cursor has a text",

	"claim.Instant":       "every instant has one form",
	"claim.Backoff.Delay": "saturates; what it is made of is checked by AbandonPolicy.Validate",
	"claim.Select":        "selects among what it is given; the policy is checked by Policy.Validate",
	"claim.State.Class":   "any state has a class at any instant, or none",
	"claim.State.Acquire": "the backend makes the token; the policy is checked by Policy.Validate",
	"claim.State.Release": "another token changes nothing, which is the answer; the policy is checked by ReleasePolicy.Validate",
	"claim.State.Abandon": "another token or sequence is Stale, which is the answer; the policy is checked by AbandonPolicy.Validate",
	"claim.State.Recover": "a run that is not poisoned is left as it is",
	"claim.State.Retain":  "any instant: claimed-at never goes back",

	"checkpoint.Schedule.Apply": "a schedule that is not valid changes nothing; commits check it before",

	"graph.Compiled.Channel":        "nil for a name that is not declared",
	"graph.Compiled.Node":           "nil for an id there is none of",
	"graph.Compiled.EdgesFrom":      "none for a source there is none of",
	"graph.Compiled.Mermaid":        "what the progress names and the graph does not is not drawn",
	"graph.Compiled.Graphviz":       "what the progress names and the graph does not is not drawn",
	"graph.Manifest.NodeType":       "says whether there is one",
	"graph.Reducer.MarshalJSON":     "writes any reducer; Publish checks it",
	"graph.Sources.MarshalJSON":     "writes any list; Publish checks it",
	"graph.Thousandths.MarshalJSON": "writes any factor; Publish checks it",

	"run.CanMove":            "an unknown status has no moves",
	"run.Next":               "says whether there is one",
	"run.Fits":               "an unknown status or schedule does not fit",
	"run.Document.Interrupt": "says whether there is one",
	"run.Document.Value":     "nil for a name that is not there",
	"run.Snooze":             "an instant in the past means due at once, also the zero one; node.Snooze refuses that",

	"backend.SealDocument": "seals any bytes; what a Sealer does wrong is a *SealingError",

	"backend.VersionPage":   "cuts what a store found; the query is checked by CheckGraphQuery",
	"backend.LatestVersion": "passes on what GraphVersions answered",

	"node.Chain":             "a nil middleware fails every attempt, since there is none yet to refuse",
	"node.Outcome":           "any error comes to something",
	"node.Prepared.Wrap":     "a nil middleware fails every attempt, since there is none yet to refuse",
	"node.FromContext":       "says whether the context is a node's",
	"node.IdempotencyKey":    "empty outside a node",
	"node.Now":               "outside a node it is the system's time",
	"node.Permanent":         "a nil error stays nil",
	"node.RetryAfter":        "a nil error stays nil, and an instant in the past changes nothing",
	"node.Skip":              "any reason; its text is made storable",
	"node.Registry.NodeType": "says whether there is one",

	"backend.AuditRun":      "whatever is wrong with a stored run is a finding",
	"backend.NewFinding":    "makes a finding; a check it does not know is of the worst severity",
	"backend.Classify":      "an error it does not know is of unknown outcome",
	"backend.StillOpen":     "it answers the error it is given, or the same as of unknown outcome",
	"backend.EventConflict": "makes an error",
	"backend.FromApart":     "wraps what the program wrote, as a nil interface would be a nil Store; the store it makes checks the input",
	"backend.IdentityOf":    "reads a document that the store has decoded",
	"backend.Scope.Sees":    "a bad owner is not seen, and a bad scope sees none",

	"memory.New":         "every field has a default",
	"memory.Store.Close": "closing twice is one close",

	"otel.New": "every field has a default; its error is the meter's",

	"lifecycle.NewULIDs":               "a nil clock is the system's",
	"lifecycle.NewVirtualClock":        "stands at any instant",
	"lifecycle.VirtualClock.Advance":   "a negative duration moves nothing",
	"lifecycle.VirtualClock.AdvanceTo": "an instant in the past moves nothing",
	"lifecycle.VirtualClock.AfterFunc": "a nil function is ignored, and a negative duration is due at once",
}
