package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// programs are the paths of what is under test.
type programs struct {
	weftd, weft string
	// cni is a folder with the plugin under both of its types' names, weft and flannel.
	cni string
}

// buildPrograms builds the commands as make build does, once for each cluster: the build cache makes
// every time but the first one cheap.
func buildPrograms(t *testing.T) programs {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./cmd/weftd", "./cmd/weft", "./cmd/weft-cni")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	p := programs{weftd: filepath.Join(dir, "weftd"), weft: filepath.Join(dir, "weft"), cni: filepath.Join(dir, "cni")}
	if err := os.Mkdir(p.cni, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weft", "flannel"} {
		if err := os.Symlink(filepath.Join(dir, "weft-cni"), filepath.Join(p.cni, name)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}
