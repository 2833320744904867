package doctor

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/running"
	"weft/test/netns"
)

// A weftd in a container has files that are not where it says they are: doctor on the host reads those of the
// container.
func TestFilesOfAWeftdInAContainer(t *testing.T) {
	netns.Need(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		`mount -t tmpfs none "$0" && cd "$0" && echo '{"Network":"10.5.0.0/16"}' >net.json && `+
			`printf 'FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.7.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n' >subnet.env && echo no certificate >ca.pem && echo && read x`, dir)
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
	if _, err := out.Read(make([]byte, 1)); err != nil { // the files are there
		t.Fatal(err)
	}
	p, err := running.Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	// As weftd is started: one name is of its root, and another of its working directory.
	p.Args = []string{"weftd", "--net-config-path=" + dir + "/net.json", "--subnet-file=subnet.env",
		"--cache-dir=" + dir, "--etcd-cafile=" + dir + "/ca.pem"}
	f := &Facts{Settings: settingsOf(p)}
	f.Files = readFiles(f.Settings.Config)
	f.Network = readNetwork(f)
	if n := f.Network; n.Err != nil || n.Networks()[0].String() != "10.5.0.0/16" ||
		n.Own.V4.String() != "10.5.7.0/24" {
		t.Errorf("%+v", n)
	}
	if len(f.Files) != 1 || f.Files[0].Err == nil || os.IsNotExist(f.Files[0].Err) ||
		!strings.HasSuffix(f.Files[0].Path, dir+"/ca.pem") {
		t.Errorf("%+v", f.Files)
	}
	if got := f.Settings.SubnetFile; filepath.Base(got) != "subnet.env" || !filepath.IsAbs(got) {
		t.Errorf("%s", got)
	}
	if f.Settings.WireGuardKeyFile != "" || f.Settings.Store.KeyFile != "" {
		t.Errorf("%+v: a file that nobody named", f.Settings)
	}
}

// TestProxyOfTheStore reads from weftd's variables whether gRPC asks the store through a proxy.
func TestProxyOfTheStore(t *testing.T) {
	for want, environ := range map[string][]string{
		"":                            {"HTTP_PROXY=http://192.0.2.8:3128"},
		"http://192.0.2.8:3128":       {"HTTPS_PROXY=http://192.0.2.8:3128", "NO_PROXY=192.0.2.10"},
		"http://xxxxx@192.0.2.8:3128": {"https_proxy=http://u:s3cret@192.0.2.8:3128"},
	} {
		args := []string{"weftd", "--etcd-endpoints=http://192.0.2.9:2379"}
		if got := settingsOf(running.Process{Args: args, Environ: environ}).Proxy; got != want {
			t.Errorf("%v: %q, want %q", environ, got, want)
		}
		environ = append([]string{"NO_PROXY=192.0.2.9"}, environ...)
		if got := settingsOf(running.Process{Args: args, Environ: environ}).Proxy; got != "" {
			t.Errorf("%v: %q", environ, got)
		}
	}
}

// TestStoreOfUnknownSettings: where nobody says how weftd is started, the default store is not asked, since
// this node may have nothing to do with it. Neither is it where a weftd answers whose process cannot be seen.
func TestStoreOfUnknownSettings(t *testing.T) {
	none := func() ([]string, error) { return nil, os.ErrNotExist }
	stopped := Daemon{Asked: true, Err: control.ErrNoDaemon}
	hidden := Daemon{Asked: true, Status: control.Status{PID: 1}}
	cluster := Daemon{Asked: true, Status: control.Status{PID: 1,
		Store: control.Store{Kind: control.KindKubernetes, Connected: true}}}
	for _, tt := range []struct {
		name   string
		daemon Daemon
		asked  bool
		what   string
	}{
		{"weftd is stopped", stopped, false, etcdStore},
		{"weftd answers from a PID namespace that is not visible", hidden, false, etcdStore},
		{"and says that it is in a cluster", cluster, true, apiServer},
	} {
		s := findSettings(Request{}, tt.daemon, none)
		got := askStore(t.Context(), s, tt.daemon, false)
		if s.NotKnown == "" || got.Asked != tt.asked || got.What != tt.what || len(got.Endpoints) > 0 {
			t.Errorf("%s: %q %+v", tt.name, s.NotKnown, got)
		}
		f := &Facts{Settings: s, Daemon: tt.daemon, Store: got, Kernel: readKernel(tt.daemon)}
		f.Network = readNetwork(f)
		for _, x := range Examine(f).Findings {
			store := strings.HasPrefix(x.ID, "store-")
			if x.Verdict == Fault && (store || x.ID == "settings" || x.ID == "tun-device" &&
				tt.daemon.Answers()) {
				t.Errorf("%s: %s", tt.name, x)
			}
		}
	}
	// A few variables, such as a lab sets, say nothing of the store; flags and the unit's file do.
	variables := []string{"WEFTD_SUBNET_FILE=/nonexistent"}
	unit := func() ([]string, error) { return nil, nil }
	for _, tt := range []struct {
		name  string
		r     Request
		asked bool
	}{
		{"variables", Request{Environ: variables}, false},
		{"flags", Request{Args: []string{"--subnet-file=/nonexistent"}}, true},
		{"the unit's file", Request{}, true},
		{"variables with the store", Request{Environ: append(variables, "WEFTD_ETCD_ENDPOINTS=http://127.0.0.1:1")},
			true},
	} {
		s := findSettings(tt.r, stopped, unit)
		for i := range s.Store.Endpoints {
			s.Store.Endpoints[i] = "http://127.0.0.1:1" // where nothing answers
		}
		f := &Facts{Settings: s, Daemon: stopped, Store: askStore(t.Context(), s, stopped, false)}
		if got := checkEndpoints(f); f.Store.Asked != tt.asked || (got[0].Verdict == Fault) != tt.asked {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	s := findSettings(Request{Args: []string{"--etcd-endpoints=http://192.0.2.1:2379"}}, stopped, none)
	if s.NotKnown != "" || s.Store.Endpoints[0] != "http://192.0.2.1:2379" {
		t.Errorf("flags are given: %+v", s)
	}
}

// TestSettingsAfterAnUpgrade are those of the process that answers, and not of the one that made the control
// socket.
func TestSettingsAfterAnUpgrade(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "weftd.sock")
	l, err := net.Listen("unix", socket) // this process made it
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "weftd")
	if err := os.Symlink(cat, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{"WEFTD_CACHE_DIR=/of/the/new/weftd"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	made := control.NewClient(socket).Listener(t.Context())
	if made != os.Getpid() {
		t.Fatalf("the listener is %d", made)
	}
	s := findSettings(Request{}, Daemon{Asked: true, PID: running.Find(made, cmd.Process.Pid)}, nil)
	if s.CacheDir != "/of/the/new/weftd" || s.Err != nil {
		t.Errorf("%s: %s, %v", s.From, s.CacheDir, s.Err)
	}
}
