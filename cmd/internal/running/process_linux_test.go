package running

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"weft/test/netns"
)

// A process in another directory, and one in another mount namespace, say where their files are.
func TestFilesOfARunningProcess(t *testing.T) {
	netns.Need(t)
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
	if !slices.Equal(p.Args, []string{"sh", "-c", "echo; read x", "--iface=eth9"}) ||
		!slices.Contains(p.Environ, "WEFTD_CACHE_DIR=state") {
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
	p = start("unshare", "--mount", "sh", "-c", "mount -t tmpfs none "+dir+"/state && touch "+dir+
		"/state/inside && echo && read x")
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

// TestFindTellsWeftdFromOthers: the control socket of a weftd that was upgraded was made by another process,
// and the pid that one in a pod reports is another process's here.
func TestFindTellsWeftdFromOthers(t *testing.T) {
	t.Parallel()
	start := func(argv ...string) int {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(cat, filepath.Join(dir, "weftd")); err != nil {
		t.Fatal(err)
	}
	former, weftd := start("cat"), start(filepath.Join(dir, "weftd"))
	for _, tt := range []struct {
		name                     string
		listener, reported, want int
	}{
		{"it made the socket", weftd, weftd, weftd},
		{"a former one did", former, weftd, weftd},
		{"a former one did, which is gone", 1 << 30, weftd, weftd},
		{"it is in a PID namespace of its own, as process 1", former, 1, 0},
		{"it reports the pid of another program here", weftd, former, 0},
		{"it is not visible", 0, weftd, 0},
		{"it does not say", weftd, 0, 0},
	} {
		if got := Find(tt.listener, tt.reported); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestLinksEndInTheRootOfTheProcess: an absolute link of a container leads to a file of the container.
func TestLinksEndInTheRootOfTheProcess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"run/secrets", "var", "a"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"var/run": "/run", "a/up": "../../../run", "a/loop": "loop",
		"run/secrets/token": "..data/token"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/var/run/secrets/x":     "/run/secrets/x",
		"/a/up/secrets/../y":     "/run/y",
		"/run/secrets/token":     "/run/secrets/..data/token",
		"/a/loop":                "/a/loop",
		"/../../no/such/../file": "/no/file",
	} {
		if got := within(root, path); got != filepath.Join(root, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
