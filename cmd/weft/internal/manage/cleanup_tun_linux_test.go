package manage

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/weft/internal/cli"
	"weft/test/netns"
)

// cleanup --rules takes the TUN that weftd left, of which flannel makes another one. If a flanneld of type
// udp was first, it found the route to the network taken and made none, and gets ours. What it adopts stays,
// and a TUN that is in use.
func TestCleanupTakesADeadTUN(t *testing.T) {
	netns.TUN(t)
	for name, c := range map[string]struct {
		held  []string // TUNs that a process has open
		lines []string
		links []string // those left
		route string
	}{
		"before flanneld": {lines: []string{"ip link set flannel0 alias weft"}},
		"after flanneld": {held: []string{"flannel1"},
			lines: []string{"ip link set flannel0 alias weft", "ip link set flannel1 up",
				"ip addr add 10.42.0.0/32 dev flannel1"},
			links: []string{"flannel1"}, route: "10.42.0.0/16 dev flannel1"},
		"a weftd runs": {held: []string{"flannel0"}, lines: []string{"ip link set flannel0 alias weft"},
			links: []string{"flannel0"}, route: "10.42.0.0/16"},
		"somebody else's": {links: []string{"flannel0"}, route: "10.42.0.0/16"},
		"what is adopted": {lines: []string{"ip link del flannel0", "ip link add flannel.1 type vxlan id 1 dev " +
			"lo dstport 8472", "ip link set flannel.1 alias weft up",
			"ip addr add 10.42.1.0/32 dev flannel.1",
			"ip route add 10.42.2.0/24 via 10.42.2.0 dev flannel.1 onlink proto 119"},
			links: []string{"flannel.1"}, route: "10.42.2.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := netns.New(t, "leaver")
			run := func(line string) string {
				args := strings.Fields(line)
				cmd := exec.Command(args[0], args[1:]...)
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := ns.Run(cmd); err != nil {
					t.Fatalf("%s: %v: %s", line, err, out.String())
				}
				return out.String()
			}
			for _, tun := range append([]string{"flannel0"}, c.held...) {
				if !slices.Contains(strings.Fields(run("ip -br link")), tun) {
					run("ip tuntap add " + tun + " mode tun")
				}
			}
			for _, tun := range c.held {
				defer hold(t, ns, tun)()
			}
			run("ip link set flannel0 up")
			run("ip addr add 10.42.1.0/32 dev flannel0")
			run("ip route add 10.42.0.0/16 dev flannel0 proto 119")
			for _, line := range c.lines {
				run(line)
			}
			f := &cleanupFlags{App: cli.NewApp(""), rules: true, cacheDir: t.TempDir()}
			for _, dry := range []bool{true, false, false} {
				before := run("ip -br link") + run("ip route")
				var got cleaned
				f.dryRun = dry
				if err := ns.Do(func() (err error) { got, err = f.clean(t.Context()); return err }); err != nil {
					t.Fatal(err)
				}
				if same := before == run("ip -br link")+run("ip route"); same != (dry || len(got.Removed) == 0) {
					t.Errorf("dry run %v, and it says %q", dry, got.Removed)
				}
			}
			var links []string
			for line := range strings.Lines(run("ip -br link")) {
				if name := strings.Fields(line)[0]; strings.HasPrefix(name, "flannel") {
					links = append(links, name)
				}
			}
			routes := run("ip route")
			if !slices.Equal(links, c.links) || c.route == "" && routes != "" || !strings.Contains(routes, c.route) ||
				strings.Count(routes, "\n") > 1 {
				t.Errorf("links %q, routes %q; want %q, %q", links, routes, c.links, c.route)
			}
		})
	}
}

// cleanup --wait waits as long as a process has the network's TUN open, also if no control socket is in
// sight, and not for another network's.
func TestCleanupWaitsForATUN(t *testing.T) {
	ns := netns.New(t, "leaver")
	release := hold(t, ns, "flannel0")
	ip := func(args string) {
		t.Helper()
		if err := ns.Run(exec.Command("ip", strings.Fields(args)...)); err != nil {
			t.Fatalf("ip %s: %v", args, err)
		}
	}
	ip("link set flannel0 alias weft")
	ip("link set flannel0 up")
	f := &cleanupFlags{App: cli.NewApp(""), cacheDir: t.TempDir(),
		subnetFile: filepath.Join(t.TempDir(), "subnet.env")}
	is := func(want bool) {
		t.Helper()
		var got bool
		if err := ns.Do(func() (err error) { got, err = f.carrying(); return err }); err != nil || got != want {
			t.Errorf("a TUN is in use: %v, %v; want %v", got, err, want)
		}
	}
	is(true)
	for network, ours := range map[string]bool{"10.42.0.0/16": true, "10.43.0.0/16": false} {
		line := "FLANNEL_NETWORK=" + network + "\nFLANNEL_SUBNET=" + strings.Replace(network, "0/16", "1/24", 1) +
			"\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
		if err := os.WriteFile(f.subnetFile, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		is(true) // it may be ours, without an address yet
		ip("addr add 10.42.7.0/32 dev flannel0")
		is(ours)
		ip("addr del 10.42.7.0/32 dev flannel0")
	}
	release()
	is(false)
}

// hold opens the TUN as a weftd does, and makes it if it is not there. It returns what closes it.
func hold(t *testing.T, ns *netns.Namespace, name string) (release func()) {
	t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		return unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Close(fd) }
}

// A dry run beside a running weftd counts a TUN without an address, which that weftd has open, as what a
// cleanup after it takes, unless another network of weft is on the host.
func TestDryRunBesideARunningWeftd(t *testing.T) {
	netns.TUN(t)
	netns.Programs(t, "nft:nftables")
	ns := netns.New(t, "runner")
	run := func(line string) {
		t.Helper()
		args := strings.Fields(line)
		if err := ns.Run(exec.Command(args[0], args[1:]...)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	run("ip tuntap add flannel0 mode tun")
	run("ip link set flannel0 alias weft up")
	defer hold(t, ns, "flannel0")()
	dir := t.TempDir()
	f := &cleanupFlags{App: cli.NewApp(""), dryRun: true, cacheDir: dir,
		subnetFile: filepath.Join(dir, "subnet.env")}
	text := "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
	if err := os.WriteFile(f.subnetFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	devices := func() (n int) {
		t.Helper()
		if err := ns.Do(func() error {
			var c cleaned
			err := f.cleanLinks(&c)
			n = len(c.Removed)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := devices(); n != 0 {
		t.Errorf("%d devices without a weftd at the socket, want 0", n)
	}
	f.running = true
	if n := devices(); n != 1 {
		t.Errorf("%d devices beside a weftd, want 1", n)
	}
	run("nft add table inet weft")
	run("nft add chain inet weft overlay-input-10.99.0.0/16")
	if n := devices(); n != 0 {
		t.Errorf("%d devices beside another network, want 0", n)
	}
}
