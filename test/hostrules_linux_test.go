package test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/netns"
)

// firewall is one that a host may have, with what the network config says about it and a command
// that makes weftd choose the flavour.
type firewall struct {
	name, key, hint string
	list            string   // all that it has
	policy          []string // has the forward policy of iptables drop, in both families
}

func firewalls() []firewall {
	const canary = "-t mangle -N KUBE-KUBELET-CANARY"
	const drops = "nft list table inet weft || true; "
	return []firewall{
		{"nftables", `"EnableNFTables":true,`, "true",
			drops + "nft list table ip flannel-ipv4 || true; nft list table ip6 flannel-ipv6 || true", nil},
		{"iptables, nft flavour", "", "iptables-nft " + canary, drops + "iptables-nft-save; ip6tables-nft-save",
			[]string{"iptables-nft", "ip6tables-nft"}},
		{"iptables, legacy flavour", "", "iptables-legacy " + canary,
			drops + "iptables-legacy-save; ip6tables-legacy-save",
			[]string{"iptables-legacy", "ip6tables-legacy"}},
	}
}

// rulesJSON is the part about rules of weft status --json.
type rulesJSON struct {
	Rules struct {
		Firewall, Error               string
		InPlace                       bool
		Repaired                      uint64
		PodsDropped, StrangersDropped uint64
		Notes                         []string
	}
}

// rulesOf waits until ok accepts what the status of a node says about rules.
func rulesOf(t *testing.T, n *lab.Node, ok func(rulesJSON) bool) (r rulesJSON) {
	t.Helper()
	await.OK(t, "the rules of "+n.Name, func() (err error) {
		if r, err = ask[rulesJSON](t.Context(), n, "status"); err == nil && !ok(r) {
			err = fmt.Errorf("%+v", r.Rules)
		}
		return err
	})
	return r
}

// In each firewall, with the kernel's vxlan and both families, the rules masquerade and forward what they
// should, and protect the overlay's port.
func TestHostRules(t *testing.T) {
	t.Parallel()
	netns.Programs(t, "iptables-legacy:iptables", "iptables-nft:iptables", "nft:nftables")
	for _, f := range firewalls() {
		t.Run(f.name, func(t *testing.T) {
			parallel(t)
			config := fmt.Sprintf(`{%s"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48",
				"Backend":{"Type":"vxlan","NoMasquerade":["198.18.0.88/32","fd18::58/128"]}}`, f.key)
			l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config),
				WeftdArgs: []string{"--ip-masq", "--iptables-resync=1", "--ip-blackhole-route"}})
			for _, n := range l.Nodes() {
				sh(t, n.Host, f.hint)
				if err := n.Restart(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
				rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace && r.Rules.Firewall == f.name })
				for _, iptables := range f.policy {
					sh(t, n.Host, iptables+" -P FORWARD DROP")
				}
			}
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
			t.Run("pods reach each other where nobody else is forwarded", func(t *testing.T) {
				reach(t, await.Patience, a, b, 4)
				reach(t, await.Patience, b, a, 6)
			})
			t.Run("masquerade", func(t *testing.T) { masquerades(t, l, a, b) })
			t.Run("overlay port", func(t *testing.T) { podsForge(t, l, a, b, []int{4, 6}) })
		})
	}
}

// ownLines are the lines of a listing that are ours, without counters.
func ownLines(listing string) map[string]bool {
	own := map[string]bool{}
	for line := range strings.Lines(listing) {
		if strings.Contains(line, "weft") || strings.Contains(line, "WEFT") || strings.Contains(line, "FLANNEL") {
			before, _, _ := strings.Cut(line, "counter")
			before, _, _ = strings.Cut(before, " [")
			own[before] = true
		}
	}
	return own
}

// seenFrom sends datagrams from a host until one arrives at ear, and says from where.
func seenFrom(t *testing.T, from *lab.Host, to netip.AddrPort, ear *net.UDPConn) netip.Addr {
	t.Helper()
	var c net.Conn
	if err := from.Do(func() (err error) { c, err = net.Dial("udp", to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var seen netip.Addr
	await.OK(t, fmt.Sprintf("a datagram from %s to %v", from.Name, to), func() error {
		if _, err := c.Write([]byte("who am I")); err != nil {
			return err
		}
		if err := ear.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		_, src, err := ear.ReadFromUDPAddrPort(make([]byte, 100))
		if seen = src.Addr().Unmap(); err == nil && seen.Is4() != to.Addr().Is4() {
			err = fmt.Errorf("one from %v", seen) // of an earlier try in the other family
		}
		return err
	})
	return seen
}

// hear listens for UDP on every address of a host.
func hear(t *testing.T, h *lab.Host, port int) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := h.Do(func() (err error) { c, err = net.ListenUDP("udp", &net.UDPAddr{Port: port}); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func masquerades(t *testing.T, l *lab.Lab, a, b *lab.Pod) {
	const port = 7777
	for number, never := range map[int]bool{77: false, 88: true} {
		h := newcomer(t, l, number)
		ear := hear(t, h, port)
		for family, to := range map[int]string{4: fmt.Sprintf("198.18.0.%d", number),
			6: fmt.Sprintf("fd18::%x", number)} {
			want := map[int]netip.Addr{4: a.Node.Underlay4, 6: a.Node.Underlay6}[family]
			if never {
				want = a.Addr(family)
			}
			if got := seenFrom(t, a.Host, netip.AddrPortFrom(netip.MustParseAddr(to), port), ear); got != want {
				t.Errorf("%s sees %s as %v, want %v", h.Name, a.Name, got, want)
			}
		}
	}
	ear := hear(t, b.Host, port)
	for _, family := range []int{4, 6} {
		if got := seenFrom(t, a.Host, netip.AddrPortFrom(b.Addr(family), port), ear); got != a.Addr(family) {
			t.Errorf("%s sees %s as %v, want %v", b.Name, a.Name, got, a.Addr(family))
		}
	}
	if routes := sh(t, a.Node.Host, "ip route; ip -6 route"); !strings.Contains(routes, "blackhole "+
		a.Node.Net.V4.Masked().String()) ||
		!strings.Contains(routes, "blackhole "+a.Node.Net.V6.Masked().String()) {
		t.Errorf("no blackhole routes:\n%s", routes)
	}
}
