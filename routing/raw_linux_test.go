package routing

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/test/await"
	"weft/test/netns"
)

// onRaw is what path raw has in the kernel of this namespace, as other programs see it; nil
// if it is all there.
func onRaw(u *Node, local string) error {
	st := u.Status()
	if st.Path != "raw" || !st.InPlace || len(st.Notes) > 0 {
		return fmt.Errorf("path %s, in place %v, notes %q, error %q", st.Path, st.InPlace, st.Notes, st.LastError)
	}
	rules, err := netns.Try("nft", "list", "ruleset")
	if err != nil || strings.Count(rules, "drop comment \"weft\"") != 1 ||
		!strings.Contains(rules, "weft-raw-"+local+"-8285") {
		return fmt.Errorf("ingress filter: %w\n%s", err, rules)
	}
	filters, err := netns.Try("tc", "filter", "show", "dev", "weft-tx4", "ingress")
	if err != nil || strings.Count(filters, "Egress Redirect to device eth0") != 1 {
		return fmt.Errorf("TAP: %w\n%s", err, filters)
	}
	return nil
}

// TestRawRepairs lets others do to path raw what they can.
func TestRawRepairs(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	stop := start(t, u)
	there := func() error { return onRaw(u, "192.0.2.1") }
	await.OK(t, "path raw", there)
	link := ip(t, "-d link show dev weft-tx4")
	for _, s := range []string{"mtu 65521", "alias weft", "NOARP", "LOWER_UP", "addrgenmode none"} {
		if !strings.Contains(link, s) {
			t.Errorf("the TAP lacks %q:\n%s", s, link)
		}
	}
	if got := ip(t, "addr show dev weft-tx4"); strings.Contains(got, "inet") {
		t.Errorf("the TAP has an address:\n%s", got)
	}

	for _, damage := range [][]string{
		{"ip", "link", "del", "weft-tx4"},
		{"ip", "link", "set", "weft-tx4", "down"},
		{"tc", "qdisc", "del", "dev", "weft-tx4", "clsact"},
		{"tc", "filter", "del", "dev", "weft-tx4", "ingress"},
		{"nft", "flush", "ruleset"},
	} {
		netns.Command(t, damage[0], damage[1:]...)
		await.OK(t, strings.Join(damage, " "), there)
	}
	if out, err := netns.Try("nft", "delete", "table", "netdev", "weft-raw-192.0.2.1-8285"); err == nil {
		t.Errorf("another process deleted the table: %s", out)
	}

	index := func(name string) int {
		d, err := k.Device(name)
		if err != nil {
			t.Fatal(err)
		}
		return d.Index
	}
	was := index("eth0")
	ip(t, "link del eth0")
	netns.EtherLink(t, "eth0", 1400, "192.0.2.1/24")
	await.OK(t, "link deleted and made again", there)
	if now := index("eth0"); now == was {
		t.Fatalf("index %d as before: the test shows nothing", now)
	}
	if sockets, err := os.ReadFile("/proc/thread-self/net/packet"); err != nil ||
		!onLink(string(sockets), index("eth0")) {
		t.Errorf("no packet socket is on eth0, which is %d: %v\n%s", index("eth0"), err, sockets)
	}

	// Nothing is noticed until both are done.
	u.mu.Lock()
	ip(t, "link del weft-tx4")
	ip(t, "tuntap add weft-tx4 mode tap")
	u.mu.Unlock()
	await.OK(t, "another device of the TAP's name", func() error {
		if link := ip(t, "link show dev weft-tx4"); !strings.Contains(link, "LOWER_UP") {
			return fmt.Errorf("nobody has it open:\n%s", link)
		}
		return there()
	})
	stop()
	if out := netns.Command(t, "nft", "list", "ruleset"); out != "" {
		t.Errorf("left behind:\n%s", out)
	}
	if link := ip(t, "link show dev weft-tx4"); !strings.Contains(link, "NO-CARRIER") {
		t.Errorf("the TAP is not there, idle:\n%s", link)
	}
	// Another backend clears it away, and nothing of anyone else.
	netns.Command(t, "ip", "tuntap", "add", "weft-tx9", "mode", "tap")
	if removed, err := RemoveLeftovers(k, lease.NetworkConfig{}, nil, nil); err != nil ||
		!slices.Equal(removed, []string{"link weft-tx4"}) {
		t.Errorf("leftovers: %q, %v", removed, err)
	}
}

// onLink reports whether one of the packet sockets, as the kernel lists them, is on the link of that number.
func onLink(sockets string, index int) bool {
	for l := range strings.Lines(sockets) {
		if f := strings.Fields(l); len(f) > 4 && f[4] == fmt.Sprint(index) {
			return true
		}
	}
	return false
}

// TestRawNeedsEthernet has path auto take the next best on a link that is none, and path raw
// refuse to start.
func TestRawNeedsEthernet(t *testing.T) {
	k := aloneInNamespace(t)
	ip(t, "tuntap add dev eth0 mode tun")
	ip(t, "link set eth0 up")
	ip(t, "addr add 192.0.2.1/24 dev eth0")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	stop := start(t, u)
	if st := u.Status(); st.Path != "socket" || !st.InPlace || !strings.Contains(fmt.Sprint(st.Notes), "eth0") {
		t.Errorf("path %s, notes %q, error %q", st.Path, st.Notes, st.LastError)
	}
	stop()

	c := u.cfg
	var err error
	if c.Network, err = Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","Path":"raw"}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewNode(t.Context(), c); err == nil || !strings.Contains(err.Error(), "eth0") {
		t.Errorf("path raw, asked for: %v", err)
	}

	// The link comes back as one that will do.
	u = newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	ip(t, "link del eth0")
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	await.OK(t, "raw on the new link", func() error { return onRaw(u, "192.0.2.1") })
}

// TestRawRepairsInAUserNamespace runs TestRawRepairs where root is only root of its own.
func TestRawRepairsInAUserNamespace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-Urn", self, "-test.run", "^TestRawRepairs$",
		"-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRawRepairs") {
		t.Errorf("%v\n%s", err, out)
	}
}
