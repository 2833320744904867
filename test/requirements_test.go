package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkRequirements keeps docs/requirements.md and the tests in step. Each row of a table of an RFC has a number, which counts up within
// the RFC so that nobody's reference to it goes astray, a section, a level, and a verdict. What is shown is shown by tests that exist, and a subtest
// that is named stands in the test's file.
func checkRequirements(t *tree) (faults []string) {
	const page = "docs/requirements.md"
	heading := regexp.MustCompile(`^## RFC (\d+)\b`)
	verdict := regexp.MustCompile(`^(shown by|not ours:|kernel:|deviation:) \S`)
	test := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")
	levels := []string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT"}
	tests := t.testFiles()
	rfc, next := "", 0
	for i, line := range strings.Split(t.files[page], "\n") {
		fault := func(format string, a ...any) {
			faults = append(faults, fmt.Sprintf("%s:%d: ", page, i+1)+fmt.Sprintf(format, a...))
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			rfc, next = m[1], 1
		} else if strings.HasPrefix(line, "## ") {
			rfc = ""
		}
		if rfc == "" || !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| no. |") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		if len(cells) != 5 {
			fault("want five cells: number, section, level, what is asked, verdict; and not %d", len(cells))
			continue
		}
		if want := fmt.Sprintf("%s-%d", rfc, next); cells[0] != want {
			fault("want number %s: a new row goes last, and none goes away", want)
		}
		next++
		if !strings.HasPrefix(cells[1], "§") {
			fault("want a section, as §4.2, and not %q", cells[1])
		}
		if !slices.Contains(levels, cells[2]) {
			fault("want one of the levels %q, and not %q", levels, cells[2])
		}
		m := verdict.FindStringSubmatch(cells[4])
		if m == nil {
			fault("want a verdict: shown by, not ours:, kernel: or deviation:")
			continue
		}
		named := test.FindAllStringSubmatch(cells[4], -1)
		if m[1] == "shown by" && named == nil {
			fault("want a test that shows it, in backquotes")
		}
		for _, n := range named {
			switch files := tests[n[1]]; {
			case files == nil:
				fault("there is no %s", n[1])
			case n[2] != "" && !slices.ContainsFunc(files, func(f *goFile) bool { return f.hasString(n[2]) }):
				fault("%s has no case %q", n[1], n[2])
			}
		}
	}
	return faults
}

// testFiles are the files of each test and fuzz target, by its name.
func (t *tree) testFiles() map[string][]*goFile {
	files := map[string][]*goFile{}
	t.eachFile(true, func(_ *pkg, f *goFile) {
		if !f.test {
			return
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				files[fn.Name.Name] = append(files[fn.Name.Name], f)
			}
		}
	})
	return files
}

// hasString says whether s is a string literal of the file.
func (f *goFile) hasString(s string) (found bool) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if v, err := strconv.Unquote(l.Value); err == nil && v == s {
				found = true
			}
		}
		return !found
	})
	return found
}
