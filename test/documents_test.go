package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// foreignFlags are the flags of other programs that our documents tell people to use.
func foreignFlags() []string {
	return strings.Fields(`
		create-namespace take-ownership set
		image profile namespace
		preserve-credentials user format userns device
		cluster-cidr pod-network-cidr allocate-node-cidrs hostname-override
		prefix permanent zone add-source add-port add-interface reload
		client-cert-auth endpoints fail-open now
		user map-root-user net foreground config-net no-map-gw tcp-ports udp-ports tcp-ns udp-ns disable-host-loopback copy-up state-dir rootless-netns
		add-subuids add-subgids preserve-credentials target
		detach privileged network volume format disable-dns subnet opt rm cap-add
		certificate-oidc-issuer certificate-identity-regexp bundle ignore-missing
		configure-cloud-routes can-ip-forward`)
}

// checkNamed finds files, flags and metrics that Markdown files name and that do not exist. A file counts as named
// if it stands in backquotes and is one of Go, or its path begins with one of our folders.
func checkNamed(t *tree) (faults []string) {
	file := regexp.MustCompile("`([\\w./-]+\\.go|(?:cmd|lease|encap|tunnel|routing|bench|test|docs)/[\\w./-]+)`")
	flag := regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]+)`)
	metric := regexp.MustCompile(`(?:^|[^:\w])(weft_[a-z_]+[a-z])\b`) // after a colon it is a part of a recording rule's name
	flags, metrics, bases := t.flagNames(), t.metricNames(), map[string]bool{}
	for name := range t.files {
		bases[path.Base(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for i, line := range strings.Split(t.files[name], "\n") {
			fault := func(kind, what string) {
				faults = append(faults, fmt.Sprintf("%s:%d: there is no %s %s", name, i+1, kind, what))
			}
			for _, m := range file.FindAllStringSubmatch(line, -1) {
				p := strings.TrimSuffix(m[1], "/")
				bare := !strings.Contains(p, "/") && (bases[p] || strings.HasPrefix(p, "_"))
				if !bare && !t.exists(p) && !t.exists(path.Join(path.Dir(name), p)) {
					fault("file", p)
				}
			}
			for _, m := range flag.FindAllStringSubmatch(line, -1) {
				if !flags[m[1]] {
					fault("flag", "--"+m[1])
				}
			}
			for _, m := range metric.FindAllStringSubmatch(line, -1) {
				if !metrics[m[1]] {
					fault("metric", m[1])
				}
			}
		}
	}
	return faults
}

// checkAnchors finds links in Markdown files to headings that are not there. checkDocuments looks at their files.
func checkAnchors(t *tree) (faults []string) {
	link := regexp.MustCompile(`\]\(([^):#\s]*)#([^)\s]+)\)`)
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for i, line := range strings.Split(t.files[name], "\n") {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target := name
				if m[1] != "" {
					target = path.Join(path.Dir(name), m[1])
				}
				if text, ok := t.files[target]; ok && path.Ext(target) == ".md" && !anchors(text)[m[2]] {
					faults = append(faults, fmt.Sprintf("%s:%d: %s has no heading #%s", name, i+1, target, m[2]))
				}
			}
		}
	}
	return faults
}

// anchors are the names that GitHub gives to the headings of a text.
func anchors(text string) map[string]bool {
	out, seen, block := map[string]bool{}, map[string]int{}, false
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		heading := strings.TrimLeft(line, "#")
		if block || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		heading = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(heading, "")
		name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
		if n := seen[name]; n > 0 {
			out[fmt.Sprintf("%s-%d", name, n)] = true
		}
		seen[name]++
		out[name] = true
	}
	return out
}

// checkShown looks at the tables of docs/troubleshooting.md and docs/reliability.md whose last column is "shown by": each row names a test. That the test exists is
// checkDocuments' to see. Where that column is "made by", the test has a case with the fault's name, and each of its cases is a row.
func checkShown(t *tree) (faults []string) {
	test := regexp.MustCompile("`((?:Test|Benchmark)\\w+)`")
	rows := map[string][]string{} // the faults of each test
	const made = "docs/troubleshooting.md"
	for _, page := range []string{made, "docs/reliability.md"} {
		faults = append(faults, t.shownOn(page, test, rows)...)
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if cases := t.casesOf(name); !slices.Equal(cases, rows[name]) {
			faults = append(faults, fmt.Sprintf("%s: the faults of %s are %q, and its cases %q", made, name, rows[name], cases))
		}
	}
	return faults
}

// shownOn is checkShown for one page. It adds to rows the faults of each test of a column "made by".
func (t *tree) shownOn(page string, test *regexp.Regexp, rows map[string][]string) (faults []string) {
	kind := ""
	for i, line := range strings.Split(t.files[page], "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		last := test.FindStringSubmatch(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			kind = ""
		case strings.HasSuffix(line, "| shown by |"), strings.HasSuffix(line, "| made by |"):
			kind = cells[len(cells)-1]
		case kind != "" && !strings.HasPrefix(line, "|---") && (len(cells) != 5 || last == nil):
			faults = append(faults, fmt.Sprintf("%s:%d: want five cells, the last with a test in backquotes", page, i+1))
		case kind == "made by" && last != nil:
			rows[last[1]] = append(rows[last[1]], cells[0])
		}
	}
	return faults
}

// casesOf are the names of the cases in the file of a test, in their order: what stands behind "name:" in a literal.
func (t *tree) casesOf(test string) (names []string) {
	for _, file := range slices.Sorted(maps.Keys(t.files)) {
		text := t.files[file]
		if !strings.HasSuffix(file, "_test.go") || !strings.Contains(text, "\nfunc "+test+"(") {
			continue
		}
		for _, m := range regexp.MustCompile(`\{name: "([^"]+)"`).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// flagNames are the names in the definitions of all programs' flags, and those of foreignFlags.
func (t *tree) flagNames() map[string]bool {
	names := map[string]bool{"help": true, "version": true}
	for _, n := range foreignFlags() {
		names[n] = true
	}
	define := regexp.MustCompile(`^(?:Bool|String|Int|Uint|Uint16|Float64|Duration)?(?:Slice|Array)?Var?P?$|^(?:Bool|String|Int|Duration)P?$|^(?:nameLab|BoolFunc|Func)$`)
	word := regexp.MustCompile(`^[a-z][a-z0-9-]+$`)
	t.eachFile(false, func(_ *pkg, f *goFile) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if row, ok := n.(*ast.CompositeLit); ok {
				if s := field(row, "name"); field(row, "usage") != "" && word.MatchString(s) {
					names[s] = true
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || !define.MatchString(called(call)) {
				return true
			}
			for _, a := range call.Args[:min(2, len(call.Args))] {
				if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, _ := strconv.Unquote(l.Value); word.MatchString(s) {
						names[s] = true
					}
				}
			}
			return true
		})
	})
	return names
}

// field returns the string of a literal's field, or of what its string begins with; "" if there is none.
func field(row *ast.CompositeLit, name string) string {
	for _, e := range row.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); !ok || key.Name != name {
			continue
		}
		value := kv.Value
		for sum, ok := value.(*ast.BinaryExpr); ok; sum, ok = value.(*ast.BinaryExpr) {
			value = sum.X
		}
		if l, ok := value.(*ast.BasicLit); ok && l.Kind == token.STRING {
			s, _ := strconv.Unquote(l.Value)
			return s
		}
	}
	return ""
}

// called is the last name of the function that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// metricNames are the string literals of the product that have the form of a metric's name.
func (t *tree) metricNames() map[string]bool {
	names, form := map[string]bool{}, regexp.MustCompile(`^weft_[a-z_]+$`)
	t.eachFile(false, func(_ *pkg, f *goFile) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, _ := strconv.Unquote(l.Value); form.MatchString(s) {
					names[s] = true
				}
			}
			return true
		})
	})
	return names
}
