package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deployCopy copies the files that the script stamp changes.
func deployCopy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-r", "../chart", "../kubernetes", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		version, chart, tag, policy string
	}{
		{"v1.2.3", "1.2.3", "v1.2.3", "IfNotPresent"},
		{"v1.2.3-rc.1+build.5", "1.2.3-rc.1+build.5", "v1.2.3-rc.1_build.5", "IfNotPresent"},
		{"v1.2.3-4-gabcdef-dirty", "1.2.3-4-gabcdef-dirty", "v1.2.3-4-gabcdef-dirty", "Always"},
		{"094f7c8", "0.0.0-094f7c8", "094f7c8", "Always"},
		{"devel", "0.0.0-devel", "devel", "Always"},
	} {
		dir := deployCopy(t)
		if out, err := exec.Command("./stamp", "-r", "registry.example:5000/me/weft", c.version,
			dir).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c.version, err, out)
		}
		for file, want := range map[string][]string{
			"chart/weft/Chart.yaml":  {"\nversion: " + c.chart + "\n", "\nappVersion: \"" + c.tag + "\"\n"},
			"chart/weft/values.yaml": {"\n    repository: registry.example:5000/me/weft\n"},
			"kubernetes/leave/weft-leave.yaml": {"\n          image: registry.example:5000/me/weft:" + c.tag +
				"\n          imagePullPolicy: " + c.policy + "\n"},
			"kubernetes/base/weft.yaml": {"\n          image: registry.example:5000/me/weft:" + c.tag +
				"\n          imagePullPolicy: " + c.policy + "\n"},
		} {
			text := "\n" + read(t, dir, file)
			for _, w := range want {
				if !strings.Contains(text, w) {
					t.Errorf("%s, %s: no %q in\n%s", c.version, file, w, text)
				}
			}
		}
	}
	for _, wrong := range [][]string{{"-r", "x;y", "v1.0.0"}, {"v1|e touch /tmp/x"}} {
		if out, err := exec.Command("./stamp", append(wrong, deployCopy(t))...).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), "not what an image") {
			t.Errorf("%q: %v: %s", wrong, err, out)
		}
	}
}

// The files in the repository are as the script stamp writes them: they have one version everywhere, and no
// tag that may name another image tomorrow.
func TestVersionInTree(t *testing.T) {
	dir := deployCopy(t)
	chart := read(t, dir, "chart/weft/Chart.yaml")
	version := regexp.MustCompile(`(?m)^appVersion: (v\d+\.\d+\.\d+)$`).FindStringSubmatch(chart)
	if version == nil || !strings.Contains(chart, "\nversion: "+version[1][1:]+"\n") {
		t.Fatalf("the chart's versions:\n%s", chart)
	}
	manifests := read(t, dir, "kubernetes/base/weft.yaml") + read(t, dir, "kubernetes/leave/weft-leave.yaml")
	for _, m := range regexp.MustCompile(`image: .*`).FindAllString(manifests, -1) {
		if m != "image: weft:"+version[1] {
			t.Errorf("%s, and the chart's is %s", m, version[1])
		}
	}
}

// publish signs every image and the chart by the digest that was pushed, and refuses a version that is no
// release. The test replaces the programs that it calls by some that note their arguments.
func TestPublish(t *testing.T) {
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	digest := func(of string) string { return "sha256:" + strings.Repeat(of, 64) }
	for name, script := range map[string]string{
		"docker": `while [ $# -gt 0 ]; do [ "$1" = --metadata-file ] && file=$2; [ "$1" = --target ] && stage=$2; shift; done
d=1; [ "$stage" = minimal ] && d=2
printf '{\n "buildx.build.ref": "x",\n "containerimage.digest": "sha256:%064d"\n}\n' 0 | tr 0 $d >"$file"`,
		"helm":   `[ "$1" != push ] || { echo "Pushed: $3/weft:1.2.3"; echo "Digest: ` + digest("3") + `"; } >&2`,
		"cosign": ``,
	} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >>" + log + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(args ...string) (string, error) {
		cmd := exec.Command("./publish", args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := publish("-v", "v1.2.3", "-r", "registry.example/me", "-o", "/nowhere", "images", "chart",
		"checksums")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := read(t, log)
	var want []string
	for _, image := range [][3]string{{"default", "v1.2.3", "1"}, {"minimal", "v1.2.3-minimal", "2"}} {
		want = append(want, "docker buildx build .*--target "+image[0]+
			" --build-arg VERSION=v1.2.3 --platform linux/amd64,linux/arm64,.* --provenance=mode=max --sbom=true "+
			"--tag registry.example/me/weft:"+image[1]+" .*--push .",
			"cosign sign --yes registry.example/me/weft@"+digest(image[2]))
	}
	want = append(want, "helm lint --strict .*", "helm package .*",
		"helm push .*/weft-1.2.3.tgz oci://registry.example/me/charts",
		"cosign sign --yes registry.example/me/charts/weft@"+digest("3"),
		"cosign sign-blob --yes --bundle /nowhere/SHA256SUMS.sigstore.json /nowhere/SHA256SUMS")
	if !regexp.MustCompile("^" + strings.Join(want, "\n") + "\n$").MatchString(calls) {
		t.Errorf("called\n%swant\n%s", calls, strings.Join(want, "\n"))
	}
	for _, args := range [][]string{
		{"-v", "devel", "-r", "r/x", "chart"}, {"-v", "v1.2.3-dirty", "-r", "r/x", "chart"},
		{"-v", "v1.2", "-r", "r/x", "chart"},
		{"-v", "v1.2.3", "chart"}, {"-v", "v1.2.3", "-r", "r/x"}, {"-v", "v1.2.3", "-r", "r/x", "nothing"},
	} {
		if out, err := publish(args...); err == nil || !strings.Contains(out, "publish: ") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "helm"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := publish("-v", "v1.2.3", "-r", "r/x", "chart"); err == nil ||
		!strings.Contains(out, "no digest") {
		t.Errorf("a push without a digest: %v: %s", err, out)
	}
}

// The workflows parse, name every action by a commit and not by a tag that may be moved, and call targets
// that exist.
func TestWorkflows(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	workflows := files(t, filepath.Join(root, ".github/workflows"))
	names := []string{}
	for name := range workflows {
		names = append(names, filepath.Join(root, ".github/workflows", name))
	}
	lint := exec.Command("go", append([]string{"-C", filepath.Join(root, ".ci/actionlint"), "tool", "actionlint",
		"-shellcheck=", "-pyflakes="}, names...)...)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", lint.Args, err, out)
	}
	makefile := read(t, root, "Makefile")
	called := []string{}
	for name, text := range workflows {
		for _, m := range regexp.MustCompile(`uses: (\S+)`).FindAllSubmatch(text, -1) {
			if !regexp.MustCompile(`@[0-9a-f]{40}$`).Match(m[1]) {
				t.Errorf("%s: %s may become another", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllSubmatch(text, -1) {
			called = append(called, string(m[1]))
			if !regexp.MustCompile(`(?m)^` + string(m[1]) + `:`).MatchString(makefile) {
				t.Errorf("%s: there is no make %s", name, m[1])
			}
		}
		if strings.Contains(string(text), ".ci/run") {
			if info, err := os.Stat(filepath.Join(root, ".ci/run")); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: .ci/run: %v", name, err)
			}
		}
	}
	for _, want := range []string{"lint", "release", "publish"} {
		if !slices.Contains(called, want) {
			t.Errorf("no workflow calls make %s", want)
		}
	}
}
