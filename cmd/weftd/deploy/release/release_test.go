package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"weft/test/netns"
)

const version = "v1.2.3-test+1"

// released runs the script of the repository at root for this machine's architecture and returns
// the files that it makes, by name.
func released(t *testing.T, root string) map[string][]byte {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command(filepath.Join(root, "cmd/weftd/deploy/release/release"), "-o", out, "-v", version,
		runtime.GOARCH)
	// The script ignores flags in the environment, such as those with which this test was built.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "GOFLAGS=-tags=nothing",
		"TMPDIR="+t.TempDir(), "TZ=Asia/Tokyo")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return files(t, out)
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = b
	}
	return all
}

// elsewhere copies what the script reads into another folder, without git's.
func elsewhere(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a folder of another name")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", "go.mod", "go.sum", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
		"SECURITY.md", "docs", "encap", "lease", "tunnel", "routing", "cmd", "bench"}
	cmd := exec.Command("cp", append(args, dir)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Of test only these are copied: test/kube may have hundreds of megabytes in bin, and no binary is made from
	// it.
	cmd = exec.Command("sh", "-ec",
		`mkdir -p "$1/test/cmd" && cp -r test/lab "$1/test/" && cp -r test/cmd/manual "$1/test/cmd/"`, "sh", dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func TestRelease(t *testing.T) {
	netns.Long(t)
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	first := released(t, root)
	name := "weft_" + version + "_linux_" + runtime.GOARCH
	clouds := "weft-cloud-routes_" + version + "_linux_" + runtime.GOARCH
	want := []string{"SHA256SUMS", name + ".cdx.json", name + ".tar.gz"}
	if slices.Contains(cloudArchitectures(t), runtime.GOARCH) {
		want = append(want, clouds+".cdx.json", clouds+".tar.gz")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	t.Run("again, elsewhere", func(t *testing.T) {
		second := released(t, elsewhere(t, root))
		if len(second) != len(first) {
			t.Errorf("%d files, and %d before", len(second), len(first))
		}
		for file, b := range first {
			if !bytes.Equal(second[file], b) {
				t.Errorf("%s differs", file)
			}
		}
	})
	t.Run("checksums", func(t *testing.T) {
		sums := ""
		for _, file := range want[1:] {
			sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(first[file]), file)
		}
		if got := string(first["SHA256SUMS"]); got != sums {
			t.Errorf("got\n%swant\n%s", got, sums)
		}
	})
	t.Run("archive", func(t *testing.T) { checkArchive(t, name, first[name+".tar.gz"]) })
	t.Run("bill of materials", func(t *testing.T) {
		checkSBOM(t, first[name+".cdx.json"], "weft@", filepath.Join(root, "go.mod"),
			"github.com/vishvananda/netlink", "go.etcd.io/etcd/server/v3", "github.com/containernetworking/cni",
			"k8s.io/client-go")
	})
	if len(want) > 3 {
		t.Run("archive of weft-cloud-routes", func(t *testing.T) {
			checkClouds(t, clouds, first[clouds+".tar.gz"])
		})
		t.Run("bill of materials of weft-cloud-routes", func(t *testing.T) {
			checkSBOM(t, first[clouds+".cdx.json"], "weft/cmd/weft-cloud-routes@",
				filepath.Join(root, "cmd/weft-cloud-routes/go.mod"),
				"github.com/aws/aws-sdk-go-v2/service/ec2", "github.com/alibabacloud-go/darabonba-openapi/v2",
				"golang.org/x/oauth2")
			if bytes.Contains(first[name+".cdx.json"], []byte("aws-sdk-go")) ||
				bytes.Contains(first[clouds+".cdx.json"], []byte("netlink")) {
				t.Error("weft's list has modules of weft-cloud-routes, or the other way round")
			}
		})
	}
}

func checkArchive(t *testing.T, name string, b []byte) {
	dir := t.TempDir()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	stamped := 0
	texts, there := map[string]string{}, map[string]bool{".": true}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 || (h.Mode != 0o644 && h.Mode != 0o755) {
			t.Errorf("%s: owner %d:%d, mode %o, time %s", h.Name, h.Uid, h.Gid, h.Mode, h.ModTime)
		}
		file, ok := strings.CutPrefix(h.Name, name+"/")
		there[path.Clean(file)] = true
		if want := map[string]string{ // files in which the version names an image or the chart
			"deploy/chart/weft/Chart.yaml":            "version: 1.2.3-test+1\n",
			"deploy/kubernetes/base/weft.yaml":        "image: weft:v1.2.3-test_1\n",
			"deploy/kubernetes/leave/weft-leave.yaml": "image: weft:v1.2.3-test_1\n"}[file]; want != "" {
			if text, err := io.ReadAll(r); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v: no %q", file, err, want)
			}
			stamped++
		}
		if !ok || h.Typeflag == tar.TypeDir || strings.Contains(file, "/") && !strings.HasPrefix(file, "docs/") {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".md") {
			texts[file] = string(text)
		}
		if strings.Contains(file, "/") {
			continue
		}
		names = append(names, file)
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	checkLinks(t, texts, there)
	for _, file := range []string{"man/weft.1", "man/weft-lease-release.1", "man/weft-doctor.1", "man/weftd.8",
		"man/weft-cni.8", "completions/weft.bash", "completions/weft.zsh",
		"completions/weft.fish", "docs/troubleshooting.md", "deploy/weftd.env",
		"deploy/chart/weft/monitoring/rules.yaml", "deploy/chart/weft/monitoring/dashboard.json"} {
		if !there[file] {
			t.Errorf("no %s", file)
		}
	}
	if want := []string{"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
		"THIRD-PARTY-LICENCES", "weft", "weft-cni", "weft-etcd", "weftd"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if stamped != 3 {
		t.Errorf("%d of chart and manifests are in it", stamped)
	}
	for _, c := range [][]string{{"weftd", "--version"}, {"weft-cni", "version"}} {
		out, err := exec.Command(filepath.Join(dir, c[0]), c[1]).Output()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("%v: %v: %s", c, err, out)
		}
	}
	for _, program := range []string{"weftd", "weft", "weft-cni"} {
		f, err := elf.Open(filepath.Join(dir, program))
		if err != nil {
			t.Fatal(err)
		}
		if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
			t.Errorf("%s loads %q", program, libs)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	licences, err := os.ReadFile(filepath.Join(dir, "THIRD-PARTY-LICENCES"))
	for _, want := range []string{"== Go and its standard library", "== go.etcd.io/etcd/server/v3",
		"== github.com/vishvananda/netlink"} {
		if err != nil || !strings.Contains(string(licences), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
}

// checkLinks follows the links of texts, by their paths in the archive, to what is there.
func checkLinks(t *testing.T, texts map[string]string, there map[string]bool) {
	followed := map[string]bool{}
	for file, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			to := path.Join(path.Dir(file), target)
			if !there[to] {
				t.Errorf("%s links to %s, which is not in the archive", file, target)
			}
			followed[file+" "+to] = true
		}
	}
	// The texts must have these links, so that a reader can follow them.
	for _, want := range []string{"README.md docs/flannel.md", "README.md CONTRIBUTING.md",
		"docs/install.md deploy/weftd.service",
		"docs/kubernetes.md deploy/chart/weft/README.md", "docs/monitoring.md docs/reference/metrics.md"} {
		if !followed[want] {
			t.Errorf("no link %s", want)
		}
	}
	if !strings.Contains(texts["docs/architecture.md"], "| `encap` |") {
		t.Error("a link to source has not become its text")
	}
}

// checkSBOM compares a list of modules with the go.mod of what purl begins to name; some modules are in both
// for certain.
func checkSBOM(t *testing.T, b []byte, purl, gomod string, some ...string) {
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct{ Name, Version, PURL string }
		}
		Components   []struct{ Name, Version, PURL string }
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(b, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.5" || bom.Metadata.Component.Version != version ||
		bom.Metadata.Component.PURL != "pkg:golang/"+purl+"v1.2.3-test%2B1" {
		t.Errorf("%+v", bom.Metadata)
	}
	have := map[string]string{}
	for _, c := range bom.Components {
		have[c.Name] = c.Version
	}
	if have["std"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("standard library %q", have["std"])
	}
	mod, err := os.ReadFile(gomod)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range some {
		if have[path] == "" || !strings.Contains(string(mod), path+" "+have[path]) {
			t.Errorf("%s: version %q is not that of go.mod", path, have[path])
		}
	}
	if len(bom.Dependencies) != 1 || len(bom.Dependencies[0].DependsOn) != len(bom.Components) {
		t.Errorf("%d components, dependencies %v", len(bom.Components), bom.Dependencies)
	}
}

func TestReleaseRefusesAVersionThatIsNone(t *testing.T) {
	out, err := exec.Command("./release", "-o", t.TempDir(), "-v", `x"; touch /tmp/here`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "letters, digits") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestChangelog: versions follow each other, the newest first, and the chart's is the newest; what has no tag
// is its forerunner. The notes of a release are its section.
func TestChangelog(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("../../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	headings := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read("CHANGELOG.md"), -1)
	if len(headings) < 2 || headings[0][1] != "Unreleased" {
		t.Fatalf("headings %q", headings)
	}
	form := regexp.MustCompile(`^([0-9]+\.[0-9]+\.[0-9]+)( - [0-9]{4}-[0-9]{2}-[0-9]{2})?$`)
	var newest string
	for _, h := range headings[1:] {
		m := form.FindStringSubmatch(h[1])
		if m == nil {
			t.Fatalf("heading %q, want a version such as 0.1.0, perhaps with a date", h[1])
		}
		if newest == "" {
			newest = m[1]
		}
	}
	if chart := read("cmd/weftd/deploy/chart/weft/Chart.yaml"); !strings.Contains(chart, "\nappVersion: v"+
		newest+"\n") {
		t.Errorf("the chart's appVersion is not v%s:\n%s", newest, chart)
	}
	notes, err := exec.Command("./notes", "v"+newest+"-rc.1").Output()
	_, section, _ := strings.Cut(read("CHANGELOG.md"), "\n## "+newest)
	_, section, _ = strings.Cut(section, "\n") // the date
	section, _, _ = strings.Cut(section, "\n## ")
	if err != nil || section == "" || strings.TrimSpace(string(notes)) != strings.TrimSpace(section) {
		t.Errorf("the notes of v%s: %v\n%s\nwant\n%s", newest, err, notes, section)
	}
	if out, err := exec.Command("./notes", "v999.0.0").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no section") {
		t.Errorf("the notes of a version that is not there: %v: %s", err, out)
	}
	out, err := exec.Command("./version").Output()
	if err != nil || !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z-]+)?\n$`).Match(out) {
		t.Errorf("version says %q: %v", out, err)
	}
}
