package manage

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/weft/internal/cli"
	"weft/lease/belief"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// cleanup --files removes the files that weftd writes, those included that it had not finished when it was
// killed, and no others.
func TestCleanupTakesFilesOfOursOnly(t *testing.T) {
	cache, run := t.TempDir(), t.TempDir()
	f := &cleanupFlags{App: cli.NewApp(""), cacheDir: cache, subnetFile: filepath.Join(run, "subnet.env")}
	names := []string{"lease.json", "lease.json.new", "node-id", "node-id.new", "kube-node.json.new",
		"extension.json.new"}
	stays := []string{"lease.json.mine", "notes", "notes.new"}
	for _, name := range append(slices.Clone(names), stays...) {
		if err := os.WriteFile(filepath.Join(cache, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(run, "subnet.env.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var c cleaned
	if err := f.cleanFiles(&c); err != nil || len(c.Removed) != len(names)+1 {
		t.Errorf("%v, removed %q", err, c.Removed)
	}
	left, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range left {
		got = append(got, e.Name())
	}
	slices.Sort(stays)
	if !slices.Equal(got, stays) {
		t.Errorf("%q are left, want %q", got, stays)
	}
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// The routes that weft cleanup removes are by weft's devices, in the networks that weftd had here, or
// blackholes of weft's; of the others with its number it says that they stay.
func TestCleanupTakesRoutesOfOursOnly(t *testing.T) {
	ns := netns.New(t, t.Name())
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := ns.Run(cmd); err != nil {
			t.Fatalf("%v (package iproute2 has ip)\n%s", err, &out)
		}
		return out.String()
	}
	sh(
		`ip link add eth0 type veth peer name far; ip link set far up; ip link set eth0 up; ip address add 192.0.2.1/24 dev eth0
		ip tuntap add flannel0 mode tun; ip link set flannel0 alias weft; ip link set flannel0 up; ip link add theirs0 type bridge; ip link set theirs0 up`)
	ours := []string{"203.0.113.0/24 dev flannel0 proto 119",
		"blackhole 10.5.1.0/24 proto 119 metric 2147483646",
		"blackhole fd00:5:0:1::/64 proto 119 metric 2147483646"}
	another := []string{"blackhole 10.9.1.0/24 proto 119 metric 2147483646"} // another network's on this host
	inside := []string{"10.5.2.0/24 via 192.0.2.2 proto 119", "10.5.3.0/24 via 192.0.2.2 proto 119 table 77",
		"fd00:5:0:2::/64 dev theirs0 proto 119"}
	theirs := []string{"198.51.100.0/24 via 192.0.2.9 proto 119", "10.0.0.0/8 dev theirs0 proto 119",
		"default via 192.0.2.9 proto 119", "blackhole 198.18.0.0/15 proto 119", "10.5.4.0/24 dev theirs0 proto 99"}
	for _, tt := range []struct {
		name, file, config string
		known              bool
	}{
		{"the subnet file",
			"FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:5::/48\nFLANNEL_IPV6_SUBNET=fd00:5:0:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n", "", true},
		{"the last known state", "", `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48"}`,
			true},
		{"neither", "", "", false},
	} {
		var script strings.Builder
		for _, r := range slices.Concat(ours, inside, theirs, another) {
			family := ""
			if strings.Contains(r, "fd00:") {
				family = "-6 "
			}
			fmt.Fprintf(&script, "ip %sroute replace %s\n", family, r)
		}
		sh(script.String())
		f := &cleanupFlags{App: cli.NewApp(""), cacheDir: t.TempDir(),
			subnetFile: filepath.Join(t.TempDir(), "subnet.env")}
		if err := os.WriteFile(f.subnetFile, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.config != "" {
			if _, err := belief.NewCache(f.cacheDir,
				"some store").Save(belief.Cached{Memory: belief.Memory{ClusterID: "c", Config: []byte(tt.config)}}); err != nil {
				t.Fatal(err)
			}
		}
		removed, kept := len(ours), len(theirs)-1 // one is of another protocol
		if tt.known {
			removed, kept = removed+len(inside), kept+len(another)
		} else {
			removed, kept = removed+len(another), kept+len(inside)
		}
		for _, f.dryRun = range []bool{true, false} {
			var c cleaned
			if err := ns.Do(func() error { return f.cleanRoutes(&c) }); err != nil || len(c.Removed) != removed ||
				len(c.Kept) != kept {
				t.Errorf("%s, dry run %t: %v, %d removed, want %d: %q\n%d kept, want %d: %q", tt.name, f.dryRun, err,
					len(c.Removed), removed, c.Removed, len(c.Kept), kept, c.Kept)
			}
		}
		left := sh("ip route show table all proto 119; ip route show proto 99")
		if n := strings.Count(left, "\n"); n != kept+1 {
			t.Errorf("%s: %d routes are left, want %d\n%s", tt.name, n, kept+1, left)
		}
	}
}

// weft cleanup has the holder of a weftd that is away end; a dry run only says that there is one.
func TestCleanupEndsTheHolder(t *testing.T) {
	f := &cleanupFlags{App: cli.NewApp("")}
	f.Socket = filepath.Join(t.TempDir(), "weftd.sock")
	path := custody.SocketFor(f.Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	ended := make(chan error, 1)
	go func() {
		ended <- custody.Hold(t.Context(), custody.HoldOptions{Socket: path, Listener: l, Owner: "x",
			Timeout: time.Hour})
	}()
	kept := custody.Open(t.Context(), custody.Options{Control: f.Socket, Owner: "x", Timeout: time.Hour,
		Getenv: func(string) string { return "" }, Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(kept.Put(custody.Item{Name: "a", FDs: []int{0}}), kept.Wait(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	kept.Close()
	for _, dry := range []bool{true, false} {
		f.dryRun = dry
		var c cleaned
		if err := f.cleanHolder(t.Context(), &c); err != nil || len(c.Removed) != 1 ||
			!strings.Contains(c.Removed[0], "descriptors") {
			t.Errorf("dry run %v: %v, %q", dry, err, c.Removed)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var c cleaned
	if err := f.cleanHolder(t.Context(), &c); err != nil || len(c.Removed) != 0 {
		t.Errorf("none is left: %v, %q", err, c.Removed)
	}
}
