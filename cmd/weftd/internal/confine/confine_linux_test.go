package confine

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"weft/cmd/internal/options"
	"weft/test/netns"
)

// refused fails the test for each of the attempts that succeeded.
func (o outcome) refused(t *testing.T, attempts ...string) {
	t.Helper()
	for _, a := range attempts {
		if why, tried := o.Attempts[a]; why == "" {
			t.Errorf("it could %s (tried: %v)", a, tried)
		}
	}
}

// byCapabilities are attempts that fail for want of a capability, and byFiles those that only landlock
// refuses to a process of root's.
var (
	byCapabilities = []string{"mount", "make a device", "change the root",
		"write to the memory of a process with more rights", "enter a namespace", "become another user"}
	byFiles = []string{"say what the kernel runs for a crash", "mount in a user namespace of its own"}
)

// try gives up rights in a process of its own.
func try(t *testing.T, env []string, word, dir string, files ...string) (o outcome) {
	t.Helper()
	cmd := command(append([]string{word, dir}, files...)...)
	cmd.Env = append(cmd.Env, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s: %s%s", word, out, &stderr)
	return o
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asTry+"=1")
	return cmd
}

// The usual capabilities are 2, 10, 12 and 13.
const usual = "CapPrm 3404, CapEff 3404, CapBnd 3404, NoNewPrivs 1"

func TestRightsAreGivenUp(t *testing.T) {
	netns.Root(t, "only root can give up root's rights")
	for _, tool := range []string{"/bin/true", "/bin/mount"} {
		// an attempt with a program that is missing would be refused too
		if _, err := os.Stat(tool); err != nil {
			t.Fatalf("%s is missing (package coreutils or mount): %v", tool, err)
		}
	}
	own, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{own, other} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mine, theirs, foreign := filepath.Join(own, "x"), filepath.Join(other, "x"),
		filepath.Join(t.TempDir(), "nobody's")
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	setting := "/proc/sys/net/ipv4/conf/lo/tag" // means nothing to the kernel

	t.Run("capabilities", func(t *testing.T) {
		o := try(t, nil, options.ConfineCapabilities, own, mine, theirs, foreign, setting)
		for _, rights := range append(o.Threads, o.Child) {
			if rights != usual {
				t.Errorf("%s, want %s", rights, usual)
			}
		}
		for file, want := range map[string]string{mine: "", theirs: "", foreign: unix.EACCES.Error(), setting: ""} {
			if o.Written[file] != want {
				t.Errorf("%s: %q, want %q", file, o.Written[file], want)
			}
		}
		if o.Enter != "" || o.Confined != "" {
			t.Errorf("%+v", o)
		}
		o.refused(t, byCapabilities...)
	})
	t.Run("files", func(t *testing.T) {
		dir := filepath.Join(own, "made", "by", "it")
		o := try(t, nil, options.ConfineFiles, dir, filepath.Join(dir, "x"), mine, theirs, setting,
			"/dev/null")
		for _, rights := range append(o.Threads, o.Child) {
			if rights != usual {
				t.Errorf("%s, want %s", rights, usual)
			}
		}
		for file, want := range map[string]string{filepath.Join(dir, "x"): "", mine: unix.EACCES.Error(),
			theirs: unix.EACCES.Error(), setting: "", "/dev/null": ""} {
			if o.Written[file] != want {
				t.Errorf("%s: %q, want %q", file, o.Written[file], want)
			}
		}
		if o.Enter != "" || o.Confined != "files" {
			t.Errorf("%+v", o)
		}
		o.refused(t, append(slices.Clone(byCapabilities), byFiles...)...)
		// What starts another one says so, since a process may be confined 16 times.
		again := try(t, []string{confined + "=" + o.Confined}, options.ConfineFiles, dir, theirs)
		if again.Written[theirs] != "" || again.Enter != "" {
			t.Errorf("the successor: %+v", again)
		}
	})
	t.Run("passed on", func(t *testing.T) { // a file gives none after no_new_privs
		out, err := command("pass", own).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "NoNewPrivs:\t1\n") ||
			!strings.Contains(string(out), "\nUid:\t65534\t") ||
			strings.Contains(string(out), "CapEff:\t0000000000000000\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("off", func(t *testing.T) {
		o := try(t, nil, options.ConfineOff, own, foreign)
		if o.Written[foreign] != "" || strings.Contains(o.Child, "NoNewPrivs 1") {
			t.Errorf("%+v", o)
		}
		for _, a := range append(slices.Clone(byCapabilities), byFiles...) {
			// else it would be no wonder that the others cannot
			if why := o.Attempts[a]; why != "" {
				t.Logf("this test's own process cannot %s: %s", a, why)
			}
		}
	})
}

func TestWhatIsKept(t *testing.T) {
	own, foreign, closed := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else {
		foreign = "/"
	}
	base := []cap.Value{cap.NET_ADMIN, cap.NET_BIND_SERVICE, cap.NET_RAW, cap.DAC_READ_SEARCH}
	for _, c := range []struct {
		name string
		o    Options
		more []cap.Value
		why  string
	}{
		{"the usual", Options{Files: []string{own, filepath.Join(own, "not", "there")}}, nil, ""},
		{"another user's directory", Options{Files: []string{own, foreign}}, []cap.Value{cap.DAC_OVERRIDE},
			foreign},
		{"one to be made in another user's", Options{Files: []string{filepath.Join(foreign, "x")}},
			[]cap.Value{cap.DAC_OVERRIDE}, "x"},
		{"one that its owner may not write to", Options{Files: []string{closed}}, []cap.Value{cap.DAC_OVERRIDE},
			closed},
		{"a TUN elsewhere", Options{OtherNamespace: true}, []cap.Value{cap.SYS_ADMIN}, ""},
	} {
		keep, why := Keep(c.o)
		if !slices.Equal(keep, append(slices.Clone(base), c.more...)) || (why == "") != (c.why == "") ||
			!strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q", c.name, keep, why)
		}
	}
}

func TestNeeds(t *testing.T) {
	cfg := options.Config{CacheDir: "/a", SubnetFile: "/b/subnet.env", ControlSocket: "/a/sock"}
	cfg.Embedded.On, cfg.Embedded.Dir = true, "/c"
	cfg.WireGuardKeyFile = "/d/wgkey"
	o := needs(cfg)
	for _, dir := range []string{"/a", "/b", "/c", "/d"} {
		if !slices.Contains(o.Files, dir) {
			t.Errorf("%v has no %s", o.Files, dir)
		}
	}
	if o.OtherNamespace {
		t.Errorf("%+v", o)
	}
	cfg = options.Config{CacheDir: "/a", SubnetFile: "/b/subnet.env"}
	cfg.Rootless.TUNNetns = "/run/netns/x"
	if o := needs(cfg); !o.OtherNamespace || slices.Contains(o.Files, "/c") || slices.Contains(o.Files, ".") {
		t.Errorf("%+v", o)
	}
}
