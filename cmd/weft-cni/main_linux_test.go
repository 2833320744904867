package main

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/cmd/internal/control"
)

func TestCommandsForPeople(t *testing.T) {
	for args, want := range map[string]string{
		"help":           "--name",
		"--help":         "-conf-file",
		"version":        "weft-cni ",
		"install --help": "-bin-dir",
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, without %q: %s", args, err, want, out.String())
		}
	}
	for _, args := range []string{"add", "probe --sokcet=x live", "probe", "probe live ready", "version now",
		"version --jsn", "install --cnof=x", "install now", "install --conf=x"} {
		if err := run(strings.Fields(args), &bytes.Buffer{}); err == nil || !wrongUsage(err) ||
			!strings.Contains(err.Error(), "weft-cni ") {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := run([]string{"probe", "--control-socket=/nonexistent/s", "ready"}, &bytes.Buffer{}); err == nil ||
		wrongUsage(err) {
		t.Errorf("a socket that is not there is no wrong usage: %v", err)
	}
}

// TestProbe checks the answers to the manifests' probes, and what makes the probes fail.
func TestProbe(t *testing.T) {
	n := &node{t: t, dir: t.TempDir()}
	socket := filepath.Join(n.dir, "weftd.sock")
	check := func(what, kind, want string) {
		t.Helper()
		var out bytes.Buffer
		err := run([]string{"probe", "--control-socket=" + socket, kind}, &out)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s, %s: %v %s, want %q", what, kind, err, &out, want)
		}
	}
	check("nothing listens yet", "live", "")
	check("nothing listens yet", "ready", "running")
	stop := n.serve(control.Status{Version: "v9", NotReady: []string{"no lease", "no config"}})
	check("not ready", "live", "")
	check("not ready", "ready", "config")
	stop()
	stop = n.serve(control.Status{Version: "v9", Ready: true})
	check("ready", "live", "")
	check("ready", "ready", "")
	check("a word it does not know", "lively", "ready")
	stop()
	l, err := net.Listen("unix", socket) // and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check("stuck", "live", "answer")
	if err := run([]string{"probe"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "ready") {
		t.Errorf("got %v", err)
	}
}

// A program that is started for every pod is small: it links no store's client. Of the
// layers below it links only the reader of subnet.env, and the way into another namespace.
func TestWhatIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if slices.Contains([]string{"weft/lease/subnetenv", "weft/lease/atomicfile", "weft/routing/ownthread"},
			pkg) {
			continue
		}
		for _, large := range []string{"k8s.io/", "go.etcd.io/", "google.golang.org/", "weft/lease",
			"weft/routing", "weft/tunnel"} {
			if strings.HasPrefix(pkg, large) {
				t.Errorf("links %s", pkg)
			}
		}
	}
}

// A runtime learns the versions from the program alone.
func TestVersionCommand(t *testing.T) {
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binDir, "weft"))
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	out, err := cmd.CombinedOutput()
	if want := `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`; err != nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("got %s, %v", out, err)
	}
	cmd = exec.Command(filepath.Join(binDir, "weft"))
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "CNI") {
		t.Errorf("without a command: %s, %v", out, err)
	}
}
