package test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"

	"weft/test/await"
	"weft/test/lab"
)

// TestEncryptBetweenLinks has two nodes that know each other behind a third: between them nothing is plain,
// and to the third, which is on their link, all is. What comes in plain from anywhere else is dropped,
// whoever it claims to be from.
func TestEncryptBetweenLinks(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 3,
		NetworkConfig: networkOf(`{"Type":"auto","Encrypt":"between-links","Userspace":"always"}`, true)})
	first, router, third := l.Node(1), l.Node(2), l.Node(3)
	sh(t, router.Host, "sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0; "+
		"nft 'table ip6 quiet { chain out { type filter hook output priority 0; icmpv6 type nd-redirect drop; }; }'")
	for _, w := range [][2]*lab.Node{{first, third}, {third, first}} {
		sh(t, w[0].Host, fmt.Sprintf("ip route add %v/32 via %v; ip -6 route add %v/128 via %v", w[1].Underlay4,
			router.Underlay4, w[1].Underlay6, router.Underlay6))
	}
	for _, w := range []struct {
		from, to *lab.Node
		way      string
	}{{first, router, "route"}, {router, first, "route"}, {third, router, "route"}, {router, third, "route"},
		{first, third, "tunnel"}, {third, first, "tunnel"}} {
		reachedBy(t, w.from, w.to, w.way)
	}
	everyPair(t, l.Pods())
	a, b, c := first.Pods[0], router.Pods[0], third.Pods[0]
	for _, f := range []int{4, 6} {
		hidden(t, l, a, c, f)
		if !plainTo(t, l, a, b, f, true) {
			t.Errorf("IPv%d: on one link it is encrypted", f)
		}
	}
	attacker := newcomer(t, l, 200)
	sh(t, attacker, fmt.Sprintf("ip route add 10.42.0.0/16 via %v", first.Underlay4))
	ear := listenOn(t, a, netip.AddrPortFrom(a.V4, forgedPort))
	for name, src := range map[string]netip.Addr{"a pod of another link": c.V4,
		"a pod of this node": a.V4.Next(), "nobody's": netip.MustParseAddr("10.42.255.9"),
		"its own": netip.MustParseAddr("198.18.0.200")} {
		forge(t, attacker, outer{src: src, dst: a.V4, payload: []byte(name)})
	}
	hearsFirst(t, ear, c, netip.AddrPortFrom(a.V4, forgedPort))
	droppedPlain(t, first, 4)
}

// TestEncryptAlways: nothing comes in plain, whoever it claims to be from, and nothing leaves so, also when
// the device that encrypts is gone.
func TestEncryptAlways(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: networkOf(`{"Type":"auto","Encrypt":"always","Userspace":"always"}`,
		true)})
	first, second := l.Node(1), l.Node(2)
	reachedBy(t, first, second, "tunnel")
	everyPair(t, l.Pods())
	a, b := first.Pods[0], second.Pods[0]
	for _, f := range []int{4, 6} {
		hidden(t, l, a, b, f)
	}
	attacker := newcomer(t, l, 200)
	sh(t, attacker, fmt.Sprintf("ip route add 10.42.0.0/16 via %v; sysctl -qw net.ipv4.ip_forward=1",
		first.Underlay4))
	ear := listenOn(t, a, netip.AddrPortFrom(a.V4, forgedPort))
	for _, src := range []netip.Addr{b.V4, second.Underlay4} {
		forge(t, attacker, outer{src: src, dst: a.V4, payload: []byte("in plain from " + src.String())})
	}
	hearsFirst(t, ear, b, netip.AddrPortFrom(a.V4, forgedPort))
	droppedPlain(t, first, 2)
	if out, errs, err := weft(t, first, "status"); err != nil ||
		!bytes.Contains([]byte(out), []byte("encrypted always")) {
		t.Errorf("%v: %s%s", err, out, errs)
	}

	// Without weftd and its devices everything would go wherever the host has another route to.
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	sh(t, second.Host, "ip link del flannel-wg; ip link del flannel-wg-v6; ip route add 10.42.0.0/16 via "+
		"198.18.0.200; ip -6 route add fd42::/48 via fd18::c8")
	if out := sh(t, second.Host, fmt.Sprintf("ip route get %v; ip -6 route get %v", a.V4, a.V6)); !bytes.Contains([]byte(out), []byte("via 198.18.0.200")) || !bytes.Contains([]byte(out), []byte("via fd18::c8")) {
		t.Fatalf("the other route is not taken:\n%s", out)
	}
	for _, f := range []int{4, 6} {
		if plainTo(t, l, b, a, f, false) {
			t.Errorf("IPv%d: it leaves in plain", f)
		}
	}
	sh(t, second.Host, "ip route del 10.42.0.0/16; ip -6 route del fd42::/48")
	if err := second.Start(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	everyPair(t, l.Pods())
}

const forgedPort = 8285 // forge's

// plainTo sends datagrams from a pod, and reports whether they are seen in plain on the wire, by a word after
// them that is. If they are wanted so, it waits until they are.
func plainTo(t *testing.T, l *lab.Lab, a, b *lab.Pod, family int, wanted bool) (seen bool) {
	t.Helper()
	wire := sniff(t, l.Wire, a.Node.Name)
	out := listenAt(t, a, family)
	defer out.Close()
	mouth := listenOn(t, &lab.Pod{Host: a.Node.Host}, netip.AddrPortFrom(a.Node.Underlay4, 9998))
	defer mouth.Close()
	word, last := []byte("a word of a pod's"), []byte("the last word")
	await.OK(t, "the end of the capture", func() error {
		for range 10 {
			if _, err := out.WriteToUDPAddrPort(word, netip.AddrPortFrom(b.Addr(family), secretPort)); err != nil {
				return err
			}
		}
		if _, err := mouth.WriteToUDPAddrPort(last, netip.AddrPortFrom(b.Node.Underlay4, 9998)); err != nil {
			return err
		}
		_, err := wire.look(time.Second, func(p gopacket.Packet) bool {
			udp, _ := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
			seen = seen || bytes.Contains(p.Data(), word)
			return udp != nil && bytes.Contains(udp.Payload, last)
		})
		if err == nil && wanted && !seen {
			err = errors.New("nothing was seen in plain, and what came after it was")
		}
		return err
	})
	return seen
}

// droppedPlain waits until a node's rules have counted so many.
func droppedPlain(t *testing.T, n *lab.Node, want uint64) {
	t.Helper()
	type rulesJSON struct{ Rules struct{ PlainDropped uint64 } }
	await.OK(t, n.Name+"'s count of what came in plain", func() error {
		s, err := weftTells[rulesJSON](t, n, "status")
		if err == nil && s.Rules.PlainDropped < want {
			err = fmt.Errorf("%d, want %d", s.Rules.PlainDropped, want)
		}
		return err
	})
}

// reachedBy waits until a node reaches all of another's subnets in one way.
func reachedBy(t *testing.T, from, to *lab.Node, way string) {
	t.Helper()
	subnets := 1
	if to.Net.V4.IsValid() && to.Net.V6.IsValid() {
		subnets = 2
	}
	await.OK(t, from.Name+" to "+to.Name, func() error {
		all, err := weftTells[waysJSON](t, from, "peers")
		reached := 0
		for _, p := range all.Peers {
			for _, w := range p.Ways {
				if p.Name == to.Name && w.Way == way {
					reached++
				}
			}
		}
		if err == nil && reached != subnets {
			err = fmt.Errorf("%+v, want %s", all, way)
		}
		return err
	})
}
