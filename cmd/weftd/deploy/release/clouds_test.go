package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cloudArchitectures are those for which the script makes weft-cloud-routes.
func cloudArchitectures(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("release")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^clouds=\((.*)\)$`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the script names no architectures of weft-cloud-routes")
	}
	return strings.Fields(string(m[1]))
}

// checkClouds looks into the archive of weft-cloud-routes.
func checkClouds(t *testing.T, name string, b []byte) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
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
		file, ok := strings.CutPrefix(path.Clean(h.Name), name+"/")
		if !ok || h.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names, there[file], texts[file] = append(names, file), true, string(text)
	}
	if want := []string{"LICENSE", "THIRD-PARTY-LICENCES", "docs/clouds.md", "docs/route-hook.openapi.json",
		"weft-cloud-routes"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	links := 0
	for _, file := range []string{"docs/clouds.md"} {
		for _, m := range regexp.MustCompile(`\]\(([^)\s#]+)`).FindAllStringSubmatch(texts[file], -1) {
			if links++; !strings.Contains(m[1], "://") && !there[path.Join("docs", m[1])] {
				t.Errorf("%s links to %s, which is not in the archive", file, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no text links to another")
	}
	for _, want := range []string{"== Go and its standard library",
		"== github.com/aws/aws-sdk-go-v2/service/ec2", "== github.com/alibabacloud-go/darabonba-openapi/v2",
		"== cloud.google.com/go/compute/metadata"} {
		if !strings.Contains(texts["THIRD-PARTY-LICENCES"], want) {
			t.Errorf("no %q", want)
		}
	}
	program := filepath.Join(t.TempDir(), "weft-cloud-routes")
	if err := os.WriteFile(program, []byte(texts["weft-cloud-routes"]), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "--version").Output(); err != nil ||
		!strings.Contains(string(out), version) {
		t.Errorf("%v: %s", err, out)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
		t.Errorf("it loads %q", libs)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
