package proptest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// declared lists the functions and methods that a package declares.
func declared(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Name.IsExported() {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// borrowed lists what the source calls of claim, checkpoint, run, or of a backend beyond
// its arguments: the functions and the methods, by name.
func borrowed(t *testing.T, name string, src any) []string {
	t.Helper()
	logic := map[string]bool{}
	for _, dir := range []string{"../claim", "../checkpoint", "../run", "../graph", "../backend/memory"} {
		for f := range declared(t, dir) {
			logic[f] = true
		}
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		sel, is := call.Fun.(*ast.SelectorExpr)
		if !is {
			return true
		}
		from, _ := sel.X.(*ast.Ident)
		switch {
		case from != nil && (from.Name == "slices" || from.Name == "strings" || from.Name == "time" || from.Name == "reflect" || from.Name == "fmt"):
		case from != nil && from.Name == "scope" && sel.Sel.Name == "Owner":
		case sel.Sel.Name == "IsZero": // of an instant
		case logic[sel.Sel.Name] || from != nil && from.Name == "backend":
			calls = append(calls, fset.Position(call.Pos()).String()+" calls "+sel.Sel.Name)
		}
		return true
	})
	return calls
}

func TestTheModelBorrowsNoLogic(t *testing.T) {
	for _, file := range []string{"model.go", "model_claim.go", "judge.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range borrowed(t, file, src) {
			t.Error(call)
		}
	}
	const cheat = `package p
		func f(s claim.State, d *run.Document) { s.Acquire(now, token, 3); d.Valid(); claim.Select(nil, p, nil); backend.CheckIdentity(i, d) }`
	if calls := borrowed(t, "cheat.go", cheat); len(calls) != 4 {
		t.Errorf("of four borrowed calls these are found: %q", calls)
	}
}
