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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/belay-run/belay"

// imports says which packages of ours each package may import. A package without a
// line here is a finding, so that a new one gets its place in the house.
var imports = map[string][]string{
	"value":              {},
	"claim":              {},
	"graph":              {"value"},
	"checkpoint":         {"claim"},
	"run":                {"claim", "checkpoint", "graph", "value"},
	"node":               {"graph", "run", "value"},
	"node/std":           {"node", "graph", "run", "value"},
	"backend":            {"run", "claim", "checkpoint", "graph", "value"},
	"backend/memory":     {"backend", "run", "claim", "checkpoint", "graph", "value"},
	"backend/sqlite":     {"backend", "run", "claim", "checkpoint", "graph", "value"},
	"backend/seal":       {"backend", "claim"},
	"backend/postgres":   {"backend", "run", "claim", "checkpoint", "graph", "value"},
	"lifecycle":          {"backend", "node", "run", "claim", "checkpoint", "graph", "value"},
	"lifecycle/otel":     {"lifecycle", "backend", "node", "run", "claim", "checkpoint", "graph", "value"},
	"proptest":           {"backend", "run", "claim", "checkpoint", "graph", "value"},
	"proptest/graphtest": {"proptest", "lifecycle", "node", "backend/memory", "backend", "run", "claim", "checkpoint", "graph", "value"},
	"belaytest":          {".", "lifecycle", "node", "node/std", "backend/memory", "backend", "run", "claim", "checkpoint", "graph", "value"},
	"internal/sealtest":  {".", "lifecycle", "node", "node/std", "backend/seal", "backend", "run", "claim", "checkpoint", "graph", "value"},
	"internal/pgtest":    {},
	"internal/mutant":    {"proptest", "backend", "run", "claim", "checkpoint", "graph", "value"},
	"internal/procstore": {"backend", "run", "claim", "checkpoint", "graph", "value"},
	".":                  {"lifecycle", "backend", "node", "run", "claim", "checkpoint", "graph", "value"},
}

// modules says which packages may import a module of others. What is not listed is
// a finding, so that a new dependency is a decision.
var modules = map[string][]string{
	"github.com/anishathalye/porcupine":        {"proptest", "proptest/graphtest"},
	"github.com/expr-lang/expr":                {"graph"},
	"github.com/go-json-experiment/json":       {"value", "graph", "run", "node"},
	"github.com/google/go-cmp":                 {"proptest", "proptest/graphtest", "belaytest"},
	"github.com/google/jsonschema-go":          {"node"},
	"github.com/jackc/pgx/v5":                  {"backend/postgres", "internal/pgtest"},
	"github.com/looplab/fsm":                   {"run"},
	"github.com/oklog/ulid/v2":                 {"backend/memory", "backend/sqlite", "backend/postgres", "lifecycle"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"value"},
	"go.opentelemetry.io/otel":                 {"lifecycle/otel"},
	"go.opentelemetry.io/otel/metric":          {"lifecycle/otel"},
	"go.opentelemetry.io/otel/trace":           {"lifecycle/otel"},
	"go.yaml.in/yaml/v3":                       {"graph"},
	"golang.org/x/sys":                         {"backend/sqlite"},
	"modernc.org/sqlite":                       {"backend/sqlite"},
	"pgregory.net/rapid":                       {"proptest", "proptest/graphtest"},
}

// pure packages call no clock, no randomness and no I/O, start no goroutine and
// know no context.
var pure = []string{"value", "graph", "claim", "checkpoint", "run"}

// impure are the standard packages, with what is below them, that a pure package
// may not import.
var impure = []string{
	"context", "crypto/rand", "database", "embed", "expvar", "flag", "hash/maphash", "io/fs", "io/ioutil", "log", "math/rand",
	"net", "os", "path/filepath", "plugin", "runtime", "syscall", "testing", "unsafe",
}

// harmless are exceptions to impure: they compute, or declare an interface.
var harmless = []string{"log/slog", "net/url"}

// calls are names of standard packages that pure packages, or all library packages,
// may not use.
var (
	impureNames = map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
		"log/slog": {
			"Default", "SetDefault", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext", "Log", "LogAttrs",
		},
	}
	libraryNames = map[string][]string{
		"fmt": {"Print", "Printf", "Println"},
		"log": {"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
		"os":  {"Exit", "Stdout", "Stderr"},
	}
)

// notLibrary are the folders whose packages may print and exit.
var notLibrary = []string{"cmd", "examples", "bench", "tools"}

// allowed are the findings that are meant, with their reason.
var allowed = map[string]string{
	"internal/sealtest/tests.go panic":   "it is a Sealer that panics, which is under test",
	"proptest/graphtest/fate.go panic":   "it is a node that panics, which is one of the fates of nodes under test",
	"backend/sqlite/statements.go panic": "it runs while the package initializes, on an embedded file: a missing one fails the first test",
}

func TestArchitecture(t *testing.T) {
	found, err := inspect(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if _, meant := allowed[f.key()]; !meant {
			t.Errorf("%v", f)
		}
	}
	for key := range allowed {
		if !slices.ContainsFunc(found, func(f finding) bool { return f.key() == key }) {
			t.Errorf("%s is allowed, but nothing there needs it", key)
		}
	}
}

// TestEveryArchitectureRuleCanFail runs the rules over a house built wrong, whose
// comments say what is to be found on their lines.
func TestEveryArchitectureRuleCanFail(t *testing.T) {
	wrong := os.DirFS("testdata/arch")
	found, err := inspect(wrong)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	err = eachFile(wrong, func(name string, file *ast.File, files *token.FileSet) {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if text, ok := strings.CutPrefix(comment.Text, "// want: "); ok {
					want = append(want, fmt.Sprintf("%s:%d: %s", name, files.Position(comment.Pos()).Line, text))
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	rules := map[string]bool{}
	for _, f := range found {
		got = append(got, f.String())
		rules[f.rule] = true
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, rule := range []string{ruleOurs, ruleUnknown, ruleModule, ruleImpureImport, ruleImpureName, ruleGo, ruleInit, ruleLibraryName, ruleBuiltin, ruleDot} {
		if !rules[rule] {
			t.Errorf("nothing breaks the rule %q", rule)
		}
	}
}

const (
	ruleOurs         = "may not import"
	ruleUnknown      = "has no line in the import rules"
	ruleModule       = "may not use the module of"
	ruleImpureImport = "is pure and may not import"
	ruleImpureName   = "is pure and may not use"
	ruleGo           = "is pure and may not start a goroutine"
	ruleInit         = "is a library and may not have an init function"
	ruleLibraryName  = "is a library and may not use"
	ruleBuiltin      = "is a library and may not call"
	ruleDot          = "may not import into its own scope"
)

type finding struct {
	file string
	line int
	pkg  string
	rule string
	what string
}

func (f finding) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s:%d: %s %s %s", f.file, f.line, f.pkg, f.rule, f.what), " ")
}

func (f finding) key() string { return f.file + " " + f.what }

// inspect reads the sources under a root, tests and test data aside.
func inspect(root fs.FS) ([]finding, error) {
	var found []finding
	err := eachFile(root, func(name string, file *ast.File, files *token.FileSet) {
		in := inspector{name: name, pkg: home(path.Dir(name)), files: files, scope: map[string]string{}, found: &found}
		in.isPure = slices.Contains(pure, in.pkg)
		in.isLibrary = file.Name.Name != "main" && !slices.ContainsFunc(notLibrary, func(folder string) bool { return within(in.pkg, folder) })
		if !in.isLibrary {
			return
		}
		if _, known := imports[in.pkg]; !known {
			in.report(file.Name, ruleUnknown, "")
		}
		for _, spec := range file.Imports {
			in.imported(spec)
		}
		ast.Inspect(file, in.node)
	})
	return found, err
}

func eachFile(root fs.FS, visit func(name string, file *ast.File, files *token.FileSet)) error {
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since the folder was listed
		}
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(name, file, files)
		return nil
	})
}

type inspector struct {
	name, pkg         string
	isPure, isLibrary bool
	files             *token.FileSet
	scope             map[string]string // local name of each imported standard package
	found             *[]finding
}

func (in *inspector) report(at ast.Node, rule, what string) {
	pkg := in.pkg
	if pkg == "." {
		pkg = "the root"
	}
	*in.found = append(*in.found, finding{in.name, in.files.Position(at.Pos()).Line, pkg, rule, what})
}

func (in *inspector) imported(spec *ast.ImportSpec) {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		in.report(spec, ruleOurs, spec.Path.Value)
		return
	}
	if spec.Name != nil && spec.Name.Name == "." {
		in.report(spec, ruleDot, name)
	}
	ours, isOurs := strings.CutPrefix(name+"/", module+"/")
	switch ours = path.Clean("./" + strings.TrimSuffix(ours, "/")); {
	case isOurs:
		if home(ours) != in.pkg && !slices.Contains(imports[in.pkg], ours) {
			in.report(spec, ruleOurs, ours)
		}
	case strings.Contains(strings.Split(name, "/")[0], "."):
		for module, packages := range modules {
			if within(name, module) {
				if !slices.Contains(packages, in.pkg) {
					in.report(spec, ruleModule, name)
				}
				return
			}
		}
		in.report(spec, ruleModule, name)
	default:
		local := path.Base(name)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		in.scope[local] = name
		banned := func(folder string) bool { return within(name, folder) }
		if in.isPure && slices.ContainsFunc(impure, banned) && !slices.Contains(harmless, name) {
			in.report(spec, ruleImpureImport, name)
		}
	}
}

func (in *inspector) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		if in.isPure {
			in.report(n, ruleGo, "")
		}
	case *ast.FuncDecl:
		if n.Recv == nil && n.Name.Name == "init" {
			in.report(n, ruleInit, "")
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"panic", "print", "println"}, f.Name) {
			in.report(n, ruleBuiltin, f.Name)
		}
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok {
			break
		}
		pkg := in.scope[x.Name]
		if in.isPure && slices.Contains(impureNames[pkg], n.Sel.Name) {
			in.report(n, ruleImpureName, pkg+"."+n.Sel.Name)
		}
		if slices.Contains(libraryNames[pkg], n.Sel.Name) {
			in.report(n, ruleLibraryName, pkg+"."+n.Sel.Name)
		}
	}
	return true
}

// home is the package whose rules hold for a package: its own, or for an internal
// one those of the package around it.
func home(pkg string) string {
	outer, _, _ := strings.Cut(pkg+"/", "/internal/")
	return strings.TrimSuffix(outer, "/")
}

// within reports whether a slash-separated name is folder or below it.
func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// TestMainModuleNeedsNoTool keeps the graph of what users build small: tools and
// the systems we compare with have modules of their own.
func TestMainModuleNeedsNoTool(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\s*([a-z0-9./_-]+\.[a-z0-9./_-]+) v\S+$`)
	tests := []string{
		"github.com/cockroachdb/datadriven", "go.uber.org/goleak", "modernc.org/libc",
		"github.com/spf13/cobra", "github.com/spf13/pflag",
	}
	known := slices.Concat(slices.Sorted(maps.Keys(modules)), tests)
	for _, match := range direct.FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(known, match[1]) {
			t.Errorf("go.mod requires %s, which has no line in the rules", match[1])
		}
	}
	if regexp.MustCompile(`(?m)^\s*tool\b`).Match(text) {
		t.Error("go.mod has a tool directive: tools belong into tools/go.mod")
	}
}
