package hostrules

import (
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/test/netns"
)

// inNamespace moves the test to a network namespace of its own, which vanishes with the
// thread. Goroutines that the test starts are not in it.
func inNamespace(t *testing.T) {
	t.Helper()
	netns.Need(t)
	for tool, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables", "iptables-nft": "iptables", "iptables-legacy": "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: apt-get install %s", err, pkg)
		}
	}
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	sh(t, "ip link set lo up")
}

// sh runs one command in the namespace, with its words split at blanks.
func sh(t *testing.T, line string) string {
	t.Helper()
	out, err := try(line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func try(line string) (string, error) {
	w := strings.Fields(line)
	var stdout, stderr strings.Builder
	cmd := exec.Command(w[0], w[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		return stdout.String() + stderr.String(), err
	}
	return stdout.String(), nil
}

// enterer returns a function that runs another on a thread of its own in the test's namespace. The
// thread is not used again.
func enterer(t *testing.T) func(func()) {
	t.Helper()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return func(f func()) {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		f()
	}
}

// flavour is a firewall that can hold the rules, with the network config's key for it and how to list it.
type flavour struct {
	name    string
	kind    kind
	list    []string
	foreign []string // rules of somebody else
}

func flavours() []flavour {
	return []flavour{
		{"nftables", kindNFTables, []string{"nft list ruleset"},
			[]string{"nft add table ip theirs", "nft add chain ip theirs c { type filter hook forward priority 0 ; }", "nft add rule ip theirs c ip saddr 10.42.0.0/16 counter"}},
		{"iptables-nft", kindIptablesNFT, []string{"iptables-nft-save", "ip6tables-nft-save"},
			[]string{"iptables-nft -A FORWARD -s 10.42.0.0/16 -j ACCEPT", "iptables-nft -t nat -N THEIRS", "iptables-nft -t nat -A POSTROUTING -j THEIRS"}},
		{"iptables-legacy", kindIptablesLegacy, []string{"iptables-legacy-save", "ip6tables-legacy-save"},
			[]string{"iptables-legacy -A FORWARD -s 10.42.0.0/16 -j ACCEPT", "iptables-legacy -t nat -N THEIRS", "iptables-legacy -t nat -A POSTROUTING -j THEIRS"}},
	}
}

const (
	overlay4 = "10.42.0.0/16"
	overlay6 = "fd42::/48"
)

func dualStack(nftables bool) lease.NetworkConfig {
	return lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, EnableNFTables: nftables,
		Network: netip.MustParsePrefix(overlay4), IPv6Network: netip.MustParsePrefix(overlay6)}
}

func testConfig(f flavour) Config {
	return Config{
		Network: dualStack(f.kind == kindNFTables), Masquerade: true, RandomFully: true, Forward: true, RouteProtocol: 119,
		NoMasquerade: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		Guard:        Guard{Port: 8472, Peers: true, Underlay: "eth0"},
		Logger:       slog.New(slog.DiscardHandler),
	}
}

func testSet(peers ...string) lease.Set {
	s := lease.Set{Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24"), V6: netip.MustParsePrefix("fd42:0:0:7::/64")}}}
	for _, p := range peers {
		a := netip.MustParseAddr(p)
		r := lease.Record{Attrs: lease.Attrs{PublicIP: a}}
		if a.Is6() {
			r.Attrs = lease.Attrs{PublicIPv6: a}
		}
		s.Peers = append(s.Peers, r)
	}
	return s
}

// testRules makes Rules that use the given flavour of iptables, whatever the machine prefers.
func testRules(t *testing.T, f flavour, c Config) *Rules {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if f.kind != kindNFTables {
		r.flavour = f.kind
	}
	return r
}

func apply(t *testing.T, r *Rules, s lease.Set) {
	t.Helper()
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
