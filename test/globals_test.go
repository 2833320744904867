package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// checkGlobals admits variables that nothing changes: sentinels, tables, patterns, embedded
// files, and the version that the linker sets.
func checkGlobals(t *tree) (faults []string) {
	for _, p := range t.pkgs {
		vars := map[string]bool{}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				gen, ok := d.(*ast.GenDecl)
				if !ok || gen.Tok != token.VAR {
					continue
				}
				for _, s := range gen.Specs {
					spec := s.(*ast.ValueSpec)
					for i, name := range spec.Names {
						if !constant(f, gen, spec, i) {
							faults = append(faults, fmt.Sprintf("%s: var %s could change, or hold what changes", f.at(name),
								name.Name))
						}
						vars[name.Name] = name.Name != "_"
					}
				}
			}
		}
		for _, f := range p.files {
			if !f.test {
				faults = append(faults, assigned(f, vars)...)
			}
		}
	}
	return faults
}

// constant reports whether a variable is of a kind that is written once, where it is declared.
func constant(f *goFile, gen *ast.GenDecl, spec *ast.ValueSpec, i int) bool {
	name := spec.Names[i].Name
	if name == "_" || name == "version" && strings.HasPrefix(f.path, "cmd/") {
		return true
	}
	for _, doc := range []*ast.CommentGroup{gen.Doc, spec.Doc} {
		if doc != nil && strings.Contains(doc.List[len(doc.List)-1].Text, "//go:embed ") {
			return true
		}
	}
	if i >= len(spec.Values) {
		return false
	}
	switch v := spec.Values[i].(type) {
	case *ast.CompositeLit:
		switch v.Type.(type) {
		case *ast.ArrayType, *ast.MapType, *ast.Ident: // Ident: a struct of the package itself
			return true
		}
	case *ast.SelectorExpr: // another package's sentinel under our name
		return strings.HasPrefix(name, "Err") && strings.HasPrefix(v.Sel.Name, "Err")
	case *ast.CallExpr:
		if sel, ok := v.Fun.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				call := x.Name + "." + sel.Sel.Name
				return regexp.MustCompile(`^(errors\.New|fmt\.Errorf|regexp\.MustCompile|netip\.\w+)$`).MatchString(call)
			}
		}
	}
	return false
}

// assigned finds what changes one of vars, or takes its address.
func assigned(f *goFile, vars map[string]bool) (faults []string) {
	check := func(e ast.Expr) {
		x := root(e)
		if x == nil || !vars[x.Name] {
			return
		}
		// A name that the file does not declare is declared in another file of the package.
		if x.Obj == nil || f.ast.Scope.Lookup(x.Name) == x.Obj {
			faults = append(faults, fmt.Sprintf("%s: %s is assigned", f.at(x), x.Name))
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				check(e)
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.RangeStmt:
			check(n.Key)
			check(n.Value)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				check(n.X)
			}
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear" || fn.Name == "copy") {
				check(n.Args[0])
			}
		}
		return true
	})
	return faults
}

// root is the variable that an expression such as a.b[i] belongs to, or nil.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.Ident:
			return x
		default:
			return nil
		}
	}
}
