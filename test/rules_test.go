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

// links has a row for what a command may not link.
func links() []struct {
	paths []string
	may   func(command string) bool // nil for no command
} {
	return []struct {
		paths []string
		may   func(command string) bool
	}{
		// what is for tests alone
		{[]string{"testing", "net/http/httptest", "github.com/google/go-cmp"}, nil},
		{[]string{"github.com/gopacket"}, ofWeft}, // for the files of weft capture
		// etcd's server, whose packages take milliseconds of each start
		{[]string{"go.etcd.io/etcd/server"}, func(command string) bool { return command == "cmd/weft-etcd" }},
		// A template may call any method by its name, so the linker has to keep every exported method of every
		// package in a program that can execute one: a quarter of weftd. weft writes a page.
		{[]string{"text/template", "html/template"}, ofWeft},
	}
}

func checkLinks(t *tree) (faults []string) {
	t.eachLinked(func(main *pkg, f *goFile, imp string) {
		bad := strings.HasPrefix(imp, module) && strings.HasSuffix(imp, "test")
		for _, l := range links() {
			bad = bad || isBelow(imp, l.paths) && (l.may == nil || !l.may(main.dir))
		}
		if bad {
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

// checkPaths finds paths that exist on their author's machine only.
func checkPaths(t *tree) (faults []string) {
	private := regexp.MustCompile(`(^|[^\w.-])/(work|home|Users)/\w|[.]library\b|\bshared/(design|reference)`)
	parts := []string{"/work/", "/home/", "/Users/", ".lib" + "rary", "shared/"} // looked for first: that is fast
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		text := t.files[name]
		if !slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) }) {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if m := private.FindString(line); m != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %q", name, i+1, m))
			}
		}
	}
	return faults
}

// checkLinkedFiles looks for the files to which Markdown files have relative links.
func checkLinkedFiles(t *tree) (faults []string) {
	link := regexp.MustCompile(`\]\(([^):#\s]+)(#[^)]*)?\)`)
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(t.files[name], -1) {
			if to := path.Join(path.Dir(name), m[1]); !t.exists(to) {
				faults = append(faults, fmt.Sprintf("%s: there is no %s", name, to))
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
