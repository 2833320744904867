package test

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Who may import whom, by layer. A layer may always import itself.
func layers() map[string][]string {
	all := []string{"cmd", "lease", "encap", "tunnel", "routing", "bench", "test"}
	return map[string][]string{
		"encap":   {},
		"lease":   {},
		"tunnel":  {"encap"},
		"routing": {"encap", "lease", "tunnel"},
		"cmd":     {"encap", "lease", "tunnel", "routing"},
		"bench":   all,
		"test":    all,
	}
}

// rooms has a row for each package that may import less of ours than its layer may, with the directories that
// it may import. A package without a row may import what its layer may.
func rooms() map[string][]string {
	return map[string][]string{
		"test/await": {}, // so that tests of every layer can use it
		"test/ports": {}, // the same

		"cmd/internal/buildinfo": {}, // every program links it, also the plugin that is started for each pod
		"cmd/internal/hostlocal": {}, // the same
		"cmd/internal/podtun":    {"routing/ownthread"},
		"cmd/internal/socket":    {"cmd/internal/rights"}, // the same
		"cmd/internal/podport":   {"cmd/internal/rights", "cmd/internal/socket"},
		"cmd/internal/custody":   {"cmd/internal/rights", "cmd/internal/safepath"},
		"cmd/internal/rights":    {},
		"cmd/internal/safepath":  {},

		"cmd/weft-cni/internal/netconf": {"lease/subnetenv"},

		"cmd/weftd/internal/pods": {"lease/atomicfile", "cmd/internal/control", "cmd/internal/events",
			"cmd/internal/podport", "lease", "tunnel", "tunnel/port"},

		"lease/subnetenv":  {"lease/atomicfile"}, // so that weft-cni, which is started for each pod, can link it
		"lease/redact":     {},
		"lease/atomicfile": {},

		"routing/hostrules": {"lease", "routing/event", "routing/internal/errno",
			"routing/internal/notify", "tunnel/nlattr"},
		"routing/internal/kernel": {"encap", "routing/internal/notify", "routing/ownthread", "tunnel/natflow",
			"tunnel/nlattr"},
		"routing/internal/errno":  {},
		"routing/internal/notify": {},
		"routing/ownthread":       {}, // every program links it
		"routing/event":           {"tunnel/port"},
		"routing/internal/plane": {"encap", "lease/atomicfile", "routing/event", "routing/internal/errno",
			"routing/internal/kernel", "tunnel", "tunnel/port"},
		"routing/internal/wireguard": {"lease/atomicfile", "routing/event"},
		"routing/probe":              {"routing/event", "tunnel/port"},
		"routing/routecontrol":       {"routing/routehook"},
		"routing/routehook":          {"lease/redact"},
		"routing/presence":           {"lease", "routing/internal/kernel", "routing/probe", "routing/underlay"},
		"routing/underlay":           {"routing/event", "routing/internal/kernel", "tunnel/port"},

		// what the data plane decides with, without the data plane
		"tunnel/fair":    {},
		"tunnel/natflow": {"encap"},
		"tunnel/pathmtu": {"encap"},
		"tunnel/port":    {"encap", "tunnel/nlattr"}, // it moves bytes, and decides about no packet
	}
}

// verbs is where the commands of weft are, a package for each kind of them.
const verbs = "cmd/weft/internal/"

// ofWeft reports whether a package is weft's own.
func ofWeft(dir string) bool { return dir == "cmd/weft" || strings.HasPrefix(dir, verbs) }

// mayUse reports whether a package of weft's commands may import another one.
func mayUse(dir, other string) bool {
	switch path.Base(other) {
	case "cli":
		return true
	case "top":
		return dir == verbs+"show"
	case "labcmd":
		return dir == verbs+"benchcmd" // which measures in a lab
	}
	return false
}

func checkLayers(t *tree) (faults []string) {
	allowed, narrower := layers(), rooms()
	t.eachFile(false, func(p *pkg, f *goFile) {
		layer := top(p.dir)
		may, ok := allowed[layer]
		if !ok {
			faults = append(faults, p.dir+" belongs to no layer")
			return
		}
		for _, imp := range f.imports() {
			ours, isOurs := strings.CutPrefix(imp, module)
			room, narrow := narrower[p.dir]
			switch {
			case !isOurs:
				if layer == "encap" && strings.Contains(top(imp), ".") {
					faults = append(faults, fmt.Sprintf("%s: encap imports %s: only the standard library is allowed",
						f.path, imp))
				}
			case narrow && !slices.Contains(room, ours):
				faults = append(faults, fmt.Sprintf("%s: %s imports %s: of ours it may import %q", f.path, p.dir,
					imp, room))
			case strings.HasPrefix(p.dir, verbs) && strings.HasPrefix(ours, verbs) && !mayUse(p.dir, ours):
				faults = append(faults, fmt.Sprintf("%s: %s imports %s: commands have in common what is in %scli",
					f.path, p.dir, imp, verbs))
			case top(ours) == layer, slices.Contains(may, top(ours)):
			case strings.HasSuffix(p.dir, "test") && (ours == "test/await" || ours == "test/ports" ||
				ours == "test/netns"):
				// no command links it
			case (p.dir == verbs+"labcmd" || p.dir == verbs+"benchcmd") && strings.HasPrefix(ours,
				"test/lab"):
			case p.dir == verbs+"benchcmd" && strings.HasPrefix(ours, "bench/"):
			default:
				faults = append(faults, fmt.Sprintf("%s: %s imports %s", f.path, p.dir, imp))
			}
		}
	})
	return faults
}

// checkTestingOnly keeps what is for tests alone out of every command.
func checkTestingOnly(t *tree) (faults []string) {
	only := []string{"testing", "net/http/httptest", "github.com/google/go-cmp", "github.com/gopacket"}
	t.eachLinked(func(main *pkg, f *goFile, imp string) {
		if ofWeft(main.dir) && isBelow(imp, []string{"github.com/gopacket"}) {
			// for the files of weft capture
			return
		}
		if isBelow(imp, only) || strings.HasPrefix(imp, module) && strings.HasSuffix(imp, "test") {
			faults = append(faults, fmt.Sprintf("%s%s links %s, by %s", module, main.dir, imp, f.path))
		}
	})
	return faults
}

// checkServerOnly keeps etcd's server, whose packages take milliseconds of each start, out of all commands
// but one.
func checkServerOnly(t *tree) (faults []string) {
	t.eachLinked(func(main *pkg, f *goFile, imp string) {
		if main.dir != "cmd/weft-etcd" && isBelow(imp, []string{"go.etcd.io/etcd/server"}) {
			faults = append(faults, fmt.Sprintf("%s%s links %s, by %s", module, main.dir, imp, f.path))
		}
	})
	return faults
}

// checkTemplates keeps templates out of all commands but weft, which writes a page. A template may call any
// method by its name, so the linker has to keep every exported method of every package in a program that can
// execute one: a quarter of weftd.
func checkTemplates(t *tree) (faults []string) {
	t.eachLinked(func(main *pkg, f *goFile, imp string) {
		if !ofWeft(main.dir) && isBelow(imp, []string{"text/template", "html/template"}) {
			faults = append(faults, fmt.Sprintf("%s%s links %s, by %s", module, main.dir, imp, f.path))
		}
	})
	return faults
}

// isBelow reports whether imp is one of paths, or lies below one.
func isBelow(imp string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return imp == p || strings.HasPrefix(imp, p+"/") })
}

// eachLinked follows the imports of each package of cmd that is not for tests through our own packages, and
// calls do with each import on the way.
func (t *tree) eachLinked(do func(main *pkg, f *goFile, imp string)) {
	byDir := map[string]*pkg{}
	for _, p := range t.pkgs {
		byDir[p.dir] = p
	}
	for _, main := range t.pkgs {
		if top(main.dir) != "cmd" || strings.HasSuffix(main.dir, "test") {
			// a package for tests is no part of a command, and none may link it
			continue
		}
		seen := map[string]bool{main.dir: true}
		for queue := []*pkg{main}; len(queue) > 0; queue = queue[1:] {
			for _, f := range queue[0].files {
				if f.test {
					continue
				}
				for _, imp := range f.imports() {
					do(main, f, imp)
					dir := strings.TrimPrefix(imp, module)
					if next := byDir[dir]; next != nil && dir != imp && !seen[dir] {
						seen[dir] = true
						queue = append(queue, next)
					}
				}
			}
		}
	}
}

func checkPackageComments(t *tree) (faults []string) {
	for _, p := range t.pkgs {
		var with []string
		for _, f := range p.files {
			if f.ast.Doc == nil {
				continue
			}
			with = append(with, f.path)
			begins := "Package " + f.ast.Name.Name
			if f.ast.Name.Name == "main" {
				begins = "Command " + path.Base(p.dir)
			}
			if !strings.HasPrefix(f.ast.Doc.Text(), strings.TrimSuffix(begins, "_test")+" ") {
				faults = append(faults, fmt.Sprintf("%s: the package comment begins with %q", f.path, begins))
			}
		}
		switch {
		case len(with) == 0:
			faults = append(faults, p.dir+": no package comment")
		case len(with) > 1:
			faults = append(faults, fmt.Sprintf("%s: more than one package comment: %v", p.dir, with))
		}
	}
	return faults
}

func checkInit(t *tree) (faults []string) {
	t.eachFile(true, func(_ *pkg, f *goFile) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				faults = append(faults, f.at(fn)+": func init")
			}
		}
	})
	return faults
}

// checkEventCodes has the code of a log line's event be a constant of the package that owns it.
func checkEventCodes(t *tree) (faults []string) {
	literal := regexp.MustCompile(`"event",\s*"`)
	t.eachFile(false, func(_ *pkg, f *goFile) {
		if literal.MatchString(t.files[f.path]) {
			faults = append(faults, f.path+": the code of an event is no constant: "+
				literal.FindString(t.files[f.path]))
		}
	})
	return faults
}

func checkExits(t *tree) (faults []string) {
	ends := regexp.MustCompile(`^(os\.Exit|(unix|syscall)\.Exit|log\.(Fatal|Panic).*)$`)
	t.eachFile(true, func(p *pkg, f *goFile) {
		if path.Base(path.Dir(p.dir)) == "cmd" && path.Base(f.path) == "main.go" || p.dir == "test/netns" {
			// the second is a TestMain's
			return
		}
		f.eachCall(func(call *ast.CallExpr, name, in string) {
			if ends.MatchString(name) && !(f.test && in == "TestMain") {
				faults = append(faults, f.at(call)+": "+name)
			}
		})
	})
	return faults
}

const maxLines = 500 // of a file that is not a test

func checkSize(t *tree) (faults []string) {
	t.eachFile(false, func(_ *pkg, f *goFile) {
		if f.lines > maxLines {
			faults = append(faults, fmt.Sprintf("%s: %d lines, more than %d: split it by concept", f.path,
				f.lines, maxLines))
		}
	})
	return faults
}

func checkNames(t *tree) (faults []string) {
	vague := regexp.MustCompile(`^(utils?|common|helpers?|misc|managers?|base|lib|shared)$`)
	for _, p := range t.pkgs {
		for _, name := range []string{path.Base(p.dir), p.files[0].ast.Name.Name} {
			if vague.MatchString(name) {
				faults = append(faults, fmt.Sprintf("%s: %q says nothing about what is inside", p.dir, name))
			}
		}
	}
	return faults
}

func checkTopLevel(t *tree) (faults []string) {
	allowed := strings.Fields(`cmd lease encap tunnel routing bench test docs go.mod go.sum Makefile README.md
		.ci .github .gitignore .gitattributes .golangci.yml LICENSE CONTRIBUTING.md CHANGELOG.md SECURITY.md`)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if first := top(name); !seen[first] && !slices.Contains(allowed, first) {
			seen[first] = true
			faults = append(faults, strings.TrimPrefix(name[:len(first)]+"/", "/")+" is not in the design")
		}
	}
	return faults
}

// checkPaths finds paths that exist on their author's machine only.
func checkPaths(t *tree) (faults []string) {
	private := regexp.MustCompile(`(^|[^\w.-])/(work|home|Users)/\w|[.]library\b|\bshared/(design|reference)`)
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		for i, line := range strings.Split(t.files[name], "\n") {
			if m := private.FindString(line); m != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %q", name, i+1, m))
			}
		}
	}
	return faults
}

// checkDocuments looks at the verbs and the relative links in Markdown files.
func checkDocuments(t *tree) (faults []string) {
	target := regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	inline := regexp.MustCompile("`(?:sudo )?make ([a-z][a-z-]*)")
	command := regexp.MustCompile(`^\s*(?:[$#] )?(?:sudo )?make ([a-z][a-z-]*)`)
	link := regexp.MustCompile(`\]\(([^):#\s]+)(#[^)]*)?\)`)
	verbs := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(t.files["Makefile"], -1) {
		verbs[m[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		fenced := false
		for i, line := range strings.Split(t.files[name], "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			find := inline
			if fenced {
				find = command
			}
			for _, m := range find.FindAllStringSubmatch(line, -1) {
				if !verbs[m[1]] {
					faults = append(faults, fmt.Sprintf("%s:%d: make %s: no such verb", name, i+1, m[1]))
				}
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if to := path.Join(path.Dir(name), m[1]); !fenced && !t.exists(to) {
					faults = append(faults, fmt.Sprintf("%s:%d: there is no %s", name, i+1, to))
				}
			}
		}
	}
	return faults
}

// exists reports whether name is a file or a directory of the tree.
func (t *tree) exists(name string) bool {
	for f := range t.files {
		if f == name || strings.HasPrefix(f, name+"/") {
			return true
		}
	}
	return false
}

// checkSkips finds tests that skip by themselves. test/netns does it for them: in make test and CI a missing
// requirement is a failure, since a test that passes because it did not run is worse than none.
func checkSkips(t *tree) (faults []string) {
	t.eachFile(true, func(p *pkg, f *goFile) {
		if p.dir == "test/netns" {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) {
				faults = append(faults, fmt.Sprintf("%s: %s.%s", f.at(call), x.Name, sel.Sel.Name))
			}
			return true
		})
	})
	return faults
}
