package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// programs are the paths of the programs under test.
type programs struct {
	weftd, weft string
	// cni is a folder with the plugin under both of its types' names, weft and flannel.
	cni string
}

// buildPrograms builds the commands as make build does, and gives the test copies of its own. They are
// built in a folder that stays, because go build then links only what has changed since the last run.
func buildPrograms(t *testing.T) programs {
	t.Helper()
	bin, err := filepath.Abs("bin")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names := []string{"weftd", "weft", "weft-cni"}
	if err := underLock(filepath.Join(bin, "lock"), func() error {
		args := []string{"build", "-trimpath", "-tags", "grpcnotrace", "-o", bin + "/"}
		for _, name := range names {
			args = append(args, "./cmd/"+name)
		}
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(bin, name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p := programs{weftd: filepath.Join(dir, "weftd"), weft: filepath.Join(dir, "weft"),
		cni: filepath.Join(dir, "cni")}
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

// underLock keeps two runs of the tests from building over each other.
func underLock(path string, fn func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return fn()
}
