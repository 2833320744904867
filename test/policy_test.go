// Package test keeps the rules of the repository that no compiler and no linter knows, and
// holds the scenarios that run several hosts.
//
// A rule is a function over the whole tree that returns its faults in words. Each comes with
// a broken example, so that it is known to be able to fail.
package test

import (
	"strings"
	"testing"
)

// rule is one policy. Each of its broken examples has to yield a fault that contains want.
type rule struct {
	name   string
	check  func(*tree) []string
	broken []example
}

type example struct {
	want  string
	files map[string]string
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	tr := readTree(t, "..")
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, fault := range r.check(tr) {
				t.Error(fault)
			}
		})
	}
}

func TestPolicyCanFail(t *testing.T) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			if len(r.broken) == 0 {
				t.Fatal("no broken example: nothing shows that this rule can fail")
			}
			for _, e := range r.broken {
				tr, err := newTree(e.files)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(r.check(tr), "\n"); !strings.Contains(got, e.want) {
					t.Errorf("files %q\n got %q\nwant %q", e.files, got, e.want)
				}
			}
		})
	}
}

func rules() []rule {
	one := func(name, text string) map[string]string { return map[string]string{name: text} }
	long := strings.Repeat("\n", maxLines)
	return []rule{
		{"imports follow the layers", checkLayers, []example{
			{"encap imports weft/lease", one("encap/a.go", `package encap; import _ "weft/lease"`)},
			{"encap imports golang.org/x/sys", one("encap/a.go", `package encap; import _ "golang.org/x/sys/unix"`)},
			{"lease/etcd imports weft/routing", one("lease/etcd/a.go", `package etcd; import _ "weft/routing"`)},
			{"tunnel imports weft/lease", one("tunnel/a.go", `package tunnel; import _ "weft/lease"`)},
			{"routing imports weft/cmd/internal/x",
				one("routing/a.go", `package routing; import _ "weft/cmd/internal/x"`)},
			{"routing imports weft/test/lab", one("routing/a.go", `package routing; import _ "weft/test/lab"`)},
			{"cmd/weftd imports weft/test/lab", one("cmd/weftd/a.go", `package main; import _ "weft/test/lab"`)},
			{"cmd/weft imports weft/bench", one("cmd/weft/a.go", `package main; import _ "weft/bench"`)},
			{"of ours it may import", one("test/await/a.go", `package await; import _ "weft/test/lab"`)},
			{"routing/internal/kernel imports weft/lease",
				one("routing/internal/kernel/a.go", `package kernel; import _ "weft/lease"`)},
			{"routing/internal/plane imports weft/routing/underlay",
				one("routing/internal/plane/a.go", `package plane; import _ "weft/routing/underlay"`)},
			{"routing/internal/plane imports weft/lease",
				one("routing/internal/plane/a.go", `package plane; import _ "weft/lease"`)},
			{"routing/presence imports weft/routing:",
				one("routing/presence/a.go", `package presence; import _ "weft/routing"`)},
			{"routing/internal/xtest imports weft/test/lab",
				one("routing/internal/xtest/a.go", `package xtest; import _ "weft/test/lab"`)},
			{"routing/underlay imports weft/lease",
				one("routing/underlay/a.go", `package underlay; import _ "weft/lease"`)},
			{"belongs to no layer", one("netutil/a.go", `package netutil; import _ "weft/encap"`)},
		}},
		{"commands link only what they need", checkLinks, []example{
			{"weft/cmd/weft links testing", map[string]string{
				"cmd/weft/a.go": `package main; import _ "weft/test/lab"`,
				"test/lab/a.go": `package lab; import _ "testing"`,
			}},
			{"weft/cmd/weftd links weft/tunnel/tunneltest",
				one("cmd/weftd/a.go", `package main; import _ "weft/tunnel/tunneltest"`)},
			{"weft/cmd/weft links go.etcd.io/etcd/server/v3/embed, by lease/etcd/x/a.go", map[string]string{
				"cmd/weft/a.go":     `package main; import _ "weft/lease/etcd/x"`,
				"lease/etcd/x/a.go": `package x; import _ "go.etcd.io/etcd/server/v3/embed"`,
			}},
			{"weft/cmd/weft-cni links html/template, by bench/report/a.go", map[string]string{
				"cmd/weft-cni/a.go": `package main; import _ "weft/bench/report"`,
				"bench/report/a.go": `package report; import _ "html/template"`,
			}},
		}},
		{"events have constants", checkEventCodes,
			[]example{{"a.go: the code", one("encap/a.go",
				`package encap; func F() { log.Info("x", "event", "ready") }`)}}},
		{"only main.go ends the process", checkExits, []example{
			{"os.Exit", one("cmd/weftd/run.go", `package main; import "os"; func f() { os.Exit(1) }`)},
			{"log.Fatalf", one("lease/a.go", `package lease; import "log"; func f() { log.Fatalf("") }`)},
			{"unix.Exit", one("lease/a.go",
				`package lease; import "golang.org/x/sys/unix"; func f() { unix.Exit(1) }`)},
			{"os.Exit", one("lease/a_test.go", `package lease; import "os"; func TestX() { os.Exit(1) }`)},
		}},
		{"no mutable state in packages", checkGlobals, []example{
			{"table is assigned", one("lease/a.go", `package lease; var table = []int{1}; func f() { table[0] = 2 }`)},
			{"table is assigned", map[string]string{
				"lease/a.go": `package lease; var table = map[int]int{}`,
				"lease/b.go": `package lease; func f() { delete(table, 1) }`}},
			{"row is assigned", one("lease/a.go",
				`package lease; type r struct{}; var row = r{}; func f() { g(&row) }`)},
			{"ErrX is assigned", one("lease/a.go",
				`package lease; import "errors"; var ErrX = errors.New("x"); func f() { ErrX = nil }`)},
		}},
		{"files are short", checkSize, []example{
			{"501 lines", one("lease/a.go", "package lease\n"+long)},
		}},
		{"nothing points into one machine", checkPaths, []example{
			{"README.md:2", one("README.md", "one\nsee /ho"+"me/me/notes\n")},
			{"a.go:1", one("encap/a.go", "package encap // read in ."+"library/x\n")},
		}},
		{"links in documents lead somewhere", checkLinkedFiles, []example{
			{"docs/nowhere.md", one("README.md", "See [there](docs/nowhere.md#a).\n")},
		}},
		{"no test skips", checkSkips, []example{
			{"t.Skip", one("lease/a_test.go", `package lease; func TestX(t *T) { t.Skip("no root") }`)},
			{"b.SkipNow", one("lease/a_test.go", `package lease; func BenchmarkX(b *B) { if x { b.SkipNow() } }`)},
		}},
	}
}
