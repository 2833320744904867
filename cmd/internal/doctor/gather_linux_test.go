package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/running"
)

// A weftd in a container has files that are not where it says they are: doctor on the host reads those of the container.
func TestFilesOfAWeftdInAContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a mount namespace: run it as root (sudo make test)")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount -t tmpfs none "$0" && cd "$0" && echo '{"Network":"10.5.0.0/16"}' >net.json && `+
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
	p.Args = []string{"weftd", "--net-config-path=" + dir + "/net.json", "--subnet-file=subnet.env", "--cache-dir=" + dir, "--etcd-cafile=" + dir + "/ca.pem"}
	f := &Facts{Settings: settingsOf(p)}
	f.Files = readFiles(f.Settings.Config)
	f.Network = readNetwork(t.Context(), f, "")
	if n := f.Network; n.Err != nil || n.Networks()[0].String() != "10.5.0.0/16" || n.Own.V4.String() != "10.5.7.0/24" {
		t.Errorf("%+v", n)
	}
	if len(f.Files) != 1 || f.Files[0].Err == nil || os.IsNotExist(f.Files[0].Err) || !strings.HasSuffix(f.Files[0].Path, dir+"/ca.pem") {
		t.Errorf("%+v", f.Files)
	}
	if got := f.Settings.SubnetFile; filepath.Base(got) != "subnet.env" || !filepath.IsAbs(got) {
		t.Errorf("%s", got)
	}
	if f.Settings.WireGuardKeyFile != "" || f.Settings.Store.KeyFile != "" {
		t.Errorf("%+v: a file that nobody named", f.Settings)
	}
}
