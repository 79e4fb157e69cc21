package lifecycle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The keys of log records are an interface: what the sources use is what docs/observing.md lists.
func TestEveryKeyOfLogRecordsIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Logs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("docs/observing.md has no section on logs")
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		documented[row[1]] = true
	}
	used := keysOfLogRecords(t)
	for key, where := range used {
		if !documented[key] {
			t.Errorf("%s uses the key %q, which docs/observing.md does not list", where, key)
		}
	}
	for key := range documented {
		if used[key] == "" {
			t.Errorf("docs/observing.md lists the key %q, which no record has", key)
		}
	}
}

// keysOfLogRecords are the keys that the sources give to slog, with a place for each.
func keysOfLogRecords(t *testing.T) map[string]string {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants, used := map[string]string{}, map[string]string{}
	var named []*ast.Ident
	files := token.NewFileSet()
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						if lit, ok := n.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
							constants[name.Name], _ = strconv.Unquote(lit.Value)
						}
					}
				}
			case *ast.CallExpr:
				fn, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) != 2 {
					return true
				}
				if x, ok := fn.X.(*ast.Ident); !ok || x.Name != "slog" {
					return true
				}
				switch key := n.Args[0].(type) {
				case *ast.BasicLit:
					text, _ := strconv.Unquote(key.Value)
					used[text] = files.Position(key.Pos()).String()
				case *ast.Ident:
					named = append(named, key)
				default:
					t.Errorf("%v: the key of a log record is neither a text nor a constant", files.Position(n.Pos()))
				}
			}
			return true
		})
	}
	for _, name := range named {
		text, ok := constants[name.Name]
		if !ok {
			t.Errorf("%v: the key %s is no constant", files.Position(name.Pos()), name.Name)
		}
		used[text] = files.Position(name.Pos()).String()
	}
	return used
}
