package running

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A process in another directory, and one in another mount namespace, say where their files are.
func TestFilesOfARunningProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(argv ...string) Process {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.Env = []string{"WEFTD_CACHE_DIR=state", "WEFTD_SUBNET_FILE=/nonexistent/subnet.env"}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil { // it runs what it is to run
			t.Fatal(err)
		}
		p, err := Read(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start("sh", "-c", "echo; read x", "--iface=eth9")
	if !slices.Equal(p.Args, []string{"sh", "-c", "echo; read x", "--iface=eth9"}) || !slices.Contains(p.Environ, "WEFTD_CACHE_DIR=state") {
		t.Errorf("%+v", p)
	}
	p.Args = []string{"weftd", "--iface=eth9"}
	cfg, err := p.Settings()
	if err != nil || cfg.CacheDir != "state" || cfg.SubnetFile != "/nonexistent/subnet.env" {
		t.Errorf("%v %+v", err, cfg)
	}
	if got := p.Path(cfg.CacheDir); got != filepath.Join(dir, "state") {
		t.Errorf("a relative name: %s", got)
	}
	if got := p.Path("/etc/x"); got != "/etc/x" {
		t.Errorf("the same files as here: %s", got)
	}
	p = start("unshare", "--mount", "sh", "-c", "mount -t tmpfs none "+dir+"/state && touch "+dir+"/state/inside && echo && read x")
	if _, err := os.Stat(filepath.Join(p.Path(filepath.Join(dir, "state")), "inside")); err != nil {
		t.Error(err)
	}
}

func TestNoProcess(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{0, -1, 1 << 30} {
		if p, err := Read(pid); err == nil || len(p.Args) > 0 {
			t.Errorf("%d: %+v", pid, p)
		}
	}
}
