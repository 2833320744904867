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
// should, and protect the overlay's port. They stay until they are cleaned up.
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
			t.Run("overlay port", func(t *testing.T) {
				portIsKept(t, l, a)
				podsForge(t, l, a, b, []int{4, 6})
			})
			t.Run("cleanup", func(t *testing.T) { cleansUp(t, a.Node, f) })
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

func sameRules(before, now string) error {
	b, n := ownLines(before), ownLines(now)
	if len(b) == 0 || fmt.Sprint(b) != fmt.Sprint(n) {
		return fmt.Errorf("%d lines of ours, before %d:\n%s", len(n), len(b), now)
	}
	return nil
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

// portIsKept sends to the kernel's vxlan what must not get there, and looks for it in the counters.
func portIsKept(t *testing.T, l *lab.Lab, a *lab.Pod) {
	const vxlan = 8472
	n, stranger := a.Node, newcomer(t, l, 66)
	before := rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace }).Rules
	// A node that has just come is a stranger to peers that do not know it yet, and asks whether they answer.
	otherBefore := rulesOf(t, l.Node(2), func(r rulesJSON) bool { return r.Rules.InPlace }).Rules
	send := func(from *lab.Host, to netip.Addr) {
		t.Helper()
		if err := from.Do(func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(to, vxlan).String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(make([]byte, 64))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []netip.Addr{n.Underlay4, n.Underlay6, n.Net.V4.Addr(), l.Node(2).Underlay4,
		l.Node(2).Underlay6} {
		send(a.Host, to)
	}
	send(stranger, n.Underlay4)
	send(stranger, n.Underlay6)
	after := rulesOf(t, n, func(r rulesJSON) bool {
		return r.Rules.PodsDropped >= before.PodsDropped+5 && r.Rules.StrangersDropped >= before.StrangersDropped+2
	}).Rules
	if after.PodsDropped != before.PodsDropped+5 || after.StrangersDropped != before.StrangersDropped+2 {
		t.Errorf("from %+v to %+v", before, after)
	}
	other := rulesOf(t, l.Node(2), func(r rulesJSON) bool { return r.Rules.InPlace }).Rules
	if other.StrangersDropped != otherBefore.StrangersDropped || other.PodsDropped != otherBefore.PodsDropped {
		t.Errorf("a pod's datagram reached the other node: from %+v to %+v", otherBefore, other)
	}
	metrics, err := n.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics,
		fmt.Sprintf(`weft_rules_dropped_packets_total{reason="from_pod"} %d`, after.PodsDropped)) {
		t.Errorf("%v\n%s", err, metrics)
	}
}

// cleansUp has weft cleanup on one node, beside things of others.
func cleansUp(t *testing.T, n *lab.Node, f firewall) {
	foreign := "ip link add theirs type veth peer name theirs-far; ip link set theirs alias theirs; ip link " +
		"set theirs up; " +
		"ip route add 192.0.2.0/24 dev theirs proto 99; iptables-nft -N THEIRS; iptables-nft -A FORWARD -s " +
		"10.42.0.0/16 -j THEIRS; " +
		"iptables-legacy -N THEIRS; nft add table ip theirs; " +
		// What only looks like ours.
		"ip link add theirs0 type bridge; ip link set theirs0 alias weft; ip tuntap add weft-tx77 mode tap; ip " +
		"tuntap add weft-tx6 mode tap; " +
		"ip link add flannel.77 type bridge; ip link set flannel.77 alias weft; nft add table netdev " +
		"weft-raw-theirs; nft add table netdev weft-raw-192.0.2.9-1; " +
		"iptables-nft -N WEFT-CUSTOM; iptables-legacy -N WEFT-CUSTOM; iptables-legacy -A INPUT -j WEFT-CUSTOM"
	sh(t, n.Host, foreign)
	if _, errs, err := weft(t, n, "cleanup"); err == nil || !strings.Contains(errs, "--force") {
		t.Errorf("while weftd runs: %v %q", err, errs)
	}
	if err := n.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	// These look as if they had outlived a data plane, which the kernel prevents, or a probe that was killed.
	sh(t, n.Host, "nft add table netdev weft-raw-192.0.2.1-8285; nft add chain netdev weft-raw-192.0.2.1-8285 "+
		"ingress '{ type filter hook ingress device eth0 priority 0; }'; "+
		"nft add rule netdev weft-raw-192.0.2.1-8285 ingress counter comment weft; "+
		"ip tuntap add weft-tx4 mode tap; ip link set weft-tx4 alias weft; ip link add weft-probe type vxlan id "+
		"16777215 dstport 1")
	all := "ip -d link; ip route; ip -6 route; nft list ruleset; iptables-nft-save; ip6tables-nft-save; " +
		"iptables-legacy-save; ip6tables-legacy-save"
	before := sh(t, n.Host, all)
	dry, errs, err := weft(t, n, "cleanup", "--dry-run")
	if err != nil || !strings.Contains(dry, "would remove link flannel.1") ||
		!strings.Contains(dry, "blackhole") ||
		!strings.Contains(dry, "netdev weft-raw-192.0.2.1-8285") || !strings.Contains(dry, "link weft-tx4") ||
		!strings.Contains(dry, "link weft-probe") {
		t.Fatalf("dry run: %v %s\n%s", err, errs, dry)
	}
	if now := sh(t, n.Host, "ip route; ip -6 route; "+f.list); sameRules(before, now) == nil &&
		!strings.Contains(now, "proto 119") {
		t.Errorf("a dry run changed something:\n%s", now)
	}
	done, errs, err := weft(t, n, "cleanup")
	if err != nil || done != strings.ReplaceAll(dry, "would remove", "removed") {
		t.Errorf("%v %s\n%s\nafter a dry run that said\n%s", err, errs, done, dry)
	}
	left := sh(t, n.Host, all)
	for _, theirs := range []string{"theirs0", "alias weft", "weft-tx77", "weft-tx6", "flannel.77",
		"weft-raw-theirs", "weft-raw-192.0.2.9-1", "WEFT-CUSTOM"} {
		if !strings.Contains(left, theirs) {
			t.Errorf("%s is not ours, and went:\n%s", theirs, left)
		}
		left = strings.ReplaceAll(left, theirs, "")
	}
	for _, word := range []string{"flannel", "FLANNEL", "weft", "WEFT", "proto 119", "blackhole"} {
		if strings.Contains(left, word) {
			t.Errorf("%q is left:\n%s", word, left)
		}
	}
	for _, line := range []string{"alias theirs", "192.0.2.0/24 dev theirs",
		"-A FORWARD -s 10.42.0.0/16 -j THEIRS", "table ip theirs", "cni0"} {
		if !strings.Contains(left, line) {
			t.Errorf("%q went too:\n%s", line, left)
		}
	}
	if again, errs, err := weft(t, n, "cleanup"); err != nil || !strings.HasPrefix(again, "nothing of weft's") {
		t.Errorf("the second time: %v %s%s", err, errs, again)
	}
	if err := n.Start(await.Context(t, await.Patience)); err != nil {
		t.Errorf("after a cleanup: %v", lab.Explain(err))
	}
}
