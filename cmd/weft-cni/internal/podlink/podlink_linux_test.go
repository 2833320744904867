package podlink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/test/netns"
)

// pair makes a host and a pod with a link between, which is eth0 in the pod and veth0 on the host, and
// returns both namespaces and the path of the pod's.
func pair(t *testing.T) (host, pod *netns.Namespace, path string) {
	t.Helper()
	host, pod = netns.New(t, "host"), netns.New(t, "pod")
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "eth0",
		PeerNamespace: netlink.NsFd(pod.FD())}
	if err := host.Netlink().LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	return host, pod, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pod.FD())
}

// limits returns the largest superpackets of IPv6 and of IPv4 that leave by a link, in bytes.
func limits(t *testing.T, n *netns.Namespace, link string) [2]uint32 {
	t.Helper()
	l, err := n.Netlink().LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	return [2]uint32{l.Attrs().GSOMaxSize, l.Attrs().GSOIPv4MaxSize}
}

// The limit is that of both families, on the pod's end alone, and can be changed.
func TestLimitGSO(t *testing.T) {
	host, pod, path := pair(t)
	before := limits(t, host, "veth0")
	for _, bytes := range []uint32{32768, 61440, 16384} {
		if err := LimitGSO(path, "eth0", int(bytes)); err != nil {
			t.Fatal(err)
		}
		got := limits(t, pod, "eth0")
		if got[0] != bytes || got[1] != bytes && got[1] != 0 {
			// kernels before 6.3 have one limit for both, and name no other
			t.Errorf("limits are %v, want %d", got, bytes)
		}
	}
	if got := limits(t, host, "veth0"); got != before {
		t.Errorf("the host's end has limits %v, had %v", got, before)
	}
}

// What cannot be done is told with the link, the namespace and the limit.
func TestLimitGSOThatFails(t *testing.T) {
	_, pod, path := pair(t)
	before := limits(t, pod, "eth0")
	gone := filepath.Join(t.TempDir(), "gone")
	for _, tt := range []struct {
		path, link string
		bytes      int
		says       string
	}{
		{path, "eth1", 32768, "eth1 in " + path},
		{gone, "eth0", 32768, "network namespace " + gone},
		{path, "eth0", 1 << 30, fmt.Sprintf("superpackets of eth0 in %s to %d bytes", path, 1<<30)},
	} {
		if err := LimitGSO(tt.path, tt.link, tt.bytes); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("got %v, want an error with %q", err, tt.says)
		}
	}
	if got := limits(t, pod, "eth0"); got != before {
		t.Errorf("limits are %v, were %v", got, before)
	}
}

func TestExists(t *testing.T) {
	host, _, path := pair(t)
	for link, want := range map[string]bool{"eth0": true, "lo": true, "eth1": false, "veth0": false} {
		if got, err := Exists(path, link); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", link, got, err, want)
		}
	}
	if _, err := Exists(filepath.Join(t.TempDir(), "gone"), "eth0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the namespace: %v", err)
	}
	// The link disappears with its other end.
	l, err := host.Netlink().LinkByName("veth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Netlink().LinkDel(l); err != nil {
		t.Fatal(err)
	}
	if got, err := Exists(path, "eth0"); got || err != nil {
		t.Errorf("a link that was deleted: %v, %v", got, err)
	}
}
