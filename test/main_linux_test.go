package test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/netns"
)

// binDir is where the commands under test are: those of $WEFT_BIN, which make test sets to what make build
// has just built, or those that are built here, once for a run of the tests.
var binDir string

// madeDir is for what is made here in any case. It goes with the run of the tests.
var madeDir string

func TestMain(m *testing.M) {
	netns.Isolate()
	dir, err := os.MkdirTemp("", "weft-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir, madeDir = dir, dir
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil { // turns limits them
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	commons.close()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build makes weftd, weft-etcd, weft and weft-cni, with the race detector if WEFT_RACE is set. It makes
// nothing if WEFT_BIN says where they are. It compiles as go test does, so that no package is compiled twice.
var build = sync.OnceValue(func() error {
	if dir := os.Getenv("WEFT_BIN"); dir != "" && os.Getenv("WEFT_RACE") == "" {
		binDir = dir
		return nil
	}
	cmd := exec.Command("go", "build", "-o", binDir+"/")
	cmd.Dir, cmd.Env = "..", os.Environ()
	if os.Getenv("WEFT_RACE") != "" {
		cmd.Args, cmd.Env = append(cmd.Args, "-race"), append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.Args = append(cmd.Args, "./cmd/weftd", "./cmd/weft-etcd", "./cmd/weft", "./cmd/weft-cni")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
})

// command is the path of weftd or weft.
func command(t testing.TB, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, name)
}

// The networks that the scenarios use.
const (
	ipv4Only  = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`
	dualStack = `{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"udp"}}`
)

// up brings a lab up, on a Debian etcd of its own unless the spec says otherwise. When the test has
// failed, the logs of its daemons are printed.
func up(t testing.TB, spec lab.Spec) *lab.Lab {
	t.Helper()
	l := raise(t, spec)
	t.Cleanup(func() {
		sayLogs(t, l)
		l.Close()
	})
	return l
}

// raise builds a lab that its caller closes.
func raise(t testing.TB, spec lab.Spec) *lab.Lab {
	t.Helper()
	netns.TUN(t)
	spec.WeftdPath = command(t, "weftd")
	if spec.Store == "" {
		spec.Store = lab.Separate
	}
	if spec.PodsPerNode == 0 {
		spec.PodsPerNode = 1
	}
	if netns.IsRoot() {
		spec.Nice = ahead // an ordinary user may not
	}
	spec.Progress = func(line string) { t.Log(line) }
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(lab.Explain(err))
	}
	return l
}

// sayLogs prints the end of the daemons' logs of a lab if the test has failed, and fails it if one has a
// fault that no test looks for.
func sayLogs(t testing.TB, l *lab.Lab) {
	t.Helper()
	if n := tableFulls() - fullsBefore; t.Failed() && n > 0 {
		t.Logf("since these tests began, %d neighbours found no room in the kernel's table, which all namespaces "+
			"share: packets for them were lost (gc_thresh3)", n)
	}
	for _, n := range l.Nodes() {
		log := n.Daemon.LogTail(1000)
		if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
			t.Errorf("%s's daemon:\n%s", n.Name, log)
		} else if t.Failed() {
			t.Logf("the end of %s's log:\n%s", n.Name, n.Daemon.LogTail(40))
		}
	}
}

// fullsBefore is what tableFulls was when the tests began.
var fullsBefore = tableFulls()

// tableFulls is how often the kernel had no room for a neighbour of IPv4 or IPv6, on any processor, in any
// namespace.
func tableFulls() (n int) {
	for _, cache := range []string{"arp_cache", "ndisc_cache"} {
		text, err := os.ReadFile("/proc/net/stat/" + cache)
		if err != nil {
			continue // this says more of a failure, and is no reason for one
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		at := slices.Index(strings.Fields(lines[0]), "table_fulls")
		for _, line := range lines[1:] {
			if f := strings.Fields(line); at >= 0 && at < len(f) {
				more, _ := strconv.ParseInt(f[at], 16, 64)
				n += int(more)
			}
		}
	}
	return n
}

// reach pings from one pod to another until there is an answer.
func reach(t testing.TB, limit time.Duration, from, to *lab.Pod, family int) time.Duration {
	t.Helper()
	start := time.Now()
	if err := lab.Reach(await.Context(t, limit), from.Endpoint(family), to.Addr(family)); err != nil {
		t.Fatalf("IPv%d: %v", family, err)
	}
	return time.Since(start)
}
