package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

func containsAll(s string, want []string) bool {
	for _, w := range want {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// says runs one more weftd on a host until it ends, and fails the test if it did not say all of want or ended
// with another status.
func says(t *testing.T, h *lab.Host, status int, want []string, args ...string) {
	t.Helper()
	var out strings.Builder
	cmd := exec.CommandContext(await.Context(t, 2*await.Patience), command(t, "weftd"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = h.NS.Run(cmd) // the status is what counts
	if got := cmd.ProcessState.ExitCode(); got != status || !containsAll(out.String(), want) {
		t.Errorf("exit status %d, want %d; wanted %q in:\n%s", got, status, want, &out)
	}
}

// --check looks at everything, says all that is wrong at once, and changes nothing.
func TestCheckChangesNothing(t *testing.T) {
	l := shared(t, ipv4Only)
	h := newcomer(t, l, 50)
	sh(t, h, "sysctl -w net.ipv4.ip_forward=1")
	dir := t.TempDir() + "/nothing-here"
	before := list(t, l.Store, prefix)
	check := func(flags ...string) []string {
		return append(flags, "--check", "--node-id=x", "--cache-dir="+dir+"/cache",
			"--subnet-file="+dir+"/subnet.env", "--control-socket="+dir+"/weftd.sock")
	}
	says(t, h, 0, []string{"no faults", "interface, ok: eth0, 198.18.0.50", "mtu, ok: 1500", "node-id", "flag",
		"default"},
		check("--iface=eth0", "--etcd-endpoints="+l.Store.Endpoint())...)
	says(t, h, 1, []string{"nope0", "ftp", "/nonexistent", "renew-margin"},
		check("--iface=nope0", "--etcd-endpoints=ftp://x", "--etcd-cafile=/nonexistent",
			"--subnet-lease-renew-margin=9999")...)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s was made: %v", dir, err)
	}
	if links := sh(t, h, "ip -o link"); strings.Contains(links, "flannel") {
		t.Errorf("devices: %s", links)
	}
	if after := list(t, l.Store, prefix); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the store has %v, before %v", after, before)
	}
}

// weft status has what a script wants to know, and the same for people.
func TestStatusSaysIt(t *testing.T) {
	l := shared(t, ipv4Only)
	reach(t, await.Patience, l.Node(1).Pods[0], l.Node(2).Pods[0], 4)
	n := l.Node(1)
	s := weftJSON[statusJSON](t, n, "status")
	subnet := n.Net.V4.Masked()
	if s.NodeID != "node1" || s.PID != n.Daemon.PID() || s.Version == "" || !s.Ready || len(s.NotReady) > 0 {
		t.Errorf("daemon: %+v", s)
	}
	if s.Lease == nil || s.Lease.Subnet != subnet || !s.Lease.Held ||
		time.Until(s.Lease.Expires) < 23*time.Hour {
		t.Errorf("lease: %+v", s.Lease)
	}
	if b := s.Backend; b.Type != "udp" || b.Path != "raw" || b.Device != "flannel0" || b.MTU != 1472 ||
		b.Port != 8285 || !b.InPlace || len(b.Notes) > 0 {
		t.Errorf("backend: %+v", b)
	}
	if u := s.Underlay; u.Link != "eth0" || u.MTU != 1500 || u.Address != n.Underlay4 ||
		u.PublicIP != n.Underlay4 || u.Lost != "" {
		t.Errorf("underlay: %+v", u)
	}
	if st := s.Store; st.Kind != "etcd" || !st.Connected || st.ClusterID == "" || st.Revision == 0 ||
		time.Since(st.LastSeen) > time.Minute || st.Prefix != prefix {
		t.Errorf("store: %+v", st)
	}
	if s.Cache.Used || s.Alarm != "" || s.Peers != 1 || s.Rejected != 0 || s.Counters.Egress.Delivered == 0 ||
		s.Counters.Ingress.Delivered == 0 {
		t.Errorf("rest: %+v", s)
	}
	if out, _, err := weft(t, n, "status"); err != nil ||
		!containsAll(out, []string{"node1", subnet.String(), "eth0", l.Store.Endpoint()}) {
		t.Errorf("%v\n%s", err, out)
	}
}
