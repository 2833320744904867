package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandsForPeople(t *testing.T) {
	for args, want := range map[string]string{
		"help":           "weft-cni install --name flannel",
		"--help":         "-conf-file",
		"version":        "weft-cni ",
		"install --help": "-bin-dir",
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, without %q: %s", args, err, want, out.String())
		}
	}
	if err := run([]string{"add"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "weft-cni help") {
		t.Errorf("got %v", err)
	}
}

// A program that is started for every pod is small: it links neither a store's client nor net/http.
func TestWhatIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, large := range []string{"net/http", "k8s.io/", "go.etcd.io/", "google.golang.org/", "weft/lease", "weft/routing", "weft/tunnel"} {
			if strings.HasPrefix(pkg, large) {
				t.Errorf("links %s", pkg)
			}
		}
	}
}

// What a runtime learns from the program alone.
func TestVersionCommand(t *testing.T) {
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binDir, "weft"))
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	out, err := cmd.CombinedOutput()
	if want := `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %s, %v", out, err)
	}
	cmd = exec.Command(filepath.Join(binDir, "weft"))
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "a CNI plugin") {
		t.Errorf("without a command: %s, %v", out, err)
	}
}
