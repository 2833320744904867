package test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path in go.mod; imports of ours begin with it.
const module = "weft/"

// tree is the repository as the rules see it.
type tree struct {
	files map[string]string // text by path, slashes, relative to the root
	pkgs  []*pkg            // sorted by directory
}

// pkg is one directory of Go files.
type pkg struct {
	dir   string
	files []*goFile // sorted by path
}

// goFile is one parsed Go file.
type goFile struct {
	path  string
	lines int
	test  bool // _test.go
	ast   *ast.File
	fset  *token.FileSet
}

// newTree parses what it is given. A Go file that does not parse is an error.
func newTree(files map[string]string) (*tree, error) {
	t := &tree{files: files}
	byDir := map[string]*pkg{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, files[name], parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
			t.pkgs = append(t.pkgs, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, &goFile{
			path: name, lines: strings.Count(files[name], "\n"),
			test: strings.HasSuffix(name, "_test.go"), ast: f, fset: fset,
		})
	}
	return t, nil
}

// readTree reads every file that git tracks, or would if it were added. In a tree without git
// (an archive) it reads everything.
func readTree(t *testing.T, root string) *tree {
	t.Helper()
	files := map[string]string{}
	for _, name := range listFiles(t, root) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and the deletion not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	tr, err := newTree(files)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.pkgs) == 0 {
		t.Fatalf("no Go file found under %s", root)
	}
	return tr
}

func listFiles(t *testing.T, root string) []string {
	t.Helper()
	git := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := git.Output(); err == nil {
		return strings.Split(string(bytes.TrimRight(out, "\x00")), "\x00")
	}
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			rel, err := filepath.Rel(root, p)
			names = append(names, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// top is the first element of a path: the layer that a package belongs to.
func top(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}

// imports lists what the file imports.
func (f *goFile) imports() []string {
	var out []string
	for _, s := range f.ast.Imports {
		out = append(out, strings.Trim(s.Path.Value, `"`))
	}
	return out
}

// at is a position for people.
func (f *goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// eachFile calls do with every file of the package, tests only if wanted.
func (t *tree) eachFile(tests bool, do func(*pkg, *goFile)) {
	for _, p := range t.pkgs {
		for _, f := range p.files {
			if tests || !f.test {
				do(p, f)
			}
		}
	}
}

// eachCall calls do with every call of a function of an imported package, as "os.Exit", and
// with the top-level function that it is in.
func (f *goFile) eachCall(do func(call *ast.CallExpr, name, in string)) {
	imported := map[string]bool{}
	for _, s := range f.ast.Imports {
		name := path.Base(strings.Trim(s.Path.Value, `"`))
		if s.Name != nil {
			name = s.Name.Name
		}
		imported[name] = true
	}
	for _, d := range f.ast.Decls {
		in := ""
		if fn, ok := d.(*ast.FuncDecl); ok {
			in = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && imported[x.Name] {
					do(call, x.Name+"."+sel.Sel.Name, in)
				}
			}
			return true
		})
	}
}
