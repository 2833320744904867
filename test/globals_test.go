package test

import (
	"fmt"
	"go/ast"
	"go/token"
)

// checkGlobals finds package variables that change. Which may be declared at all gochecknoglobals says.
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
					for _, name := range s.(*ast.ValueSpec).Names {
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
