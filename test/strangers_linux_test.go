package test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// forgery is a datagram that nobody honest sends.
type forgery struct {
	name   string
	from   netip.Addr // outer source
	tos    uint8
	inner  []byte
	reason string
}

const secretPort = 4242

// forgeries has one for each reason, for a pod a, who has a peer with pod b; stranger is nobody's address.
// What else has these reasons, package tunnel's tests show.
func forgeries(t *testing.T, a, b *lab.Pod, stranger netip.Addr) []forgery {
	pa, pb, peer := a.V4.String(), b.V4.String(), b.Node.Underlay4
	gw := a.Node.Net.V4.Masked().Addr().String() // the address of a's node on the overlay
	in := func(src, dst string) []byte { return inner(t, src, dst, secretPort, 64, "forged") }
	return []forgery{
		{"from a stranger, as if from a pod", stranger, 0, in(pb, pa), "unknown_peer"},
		{"from a peer, inner source of nobody", peer, 0, in("10.42.254.1", pa), "foreign_source"},
		{"from a peer, loopback inside", peer, 0, in("127.0.0.1", pa), "martian"},
		{"from a peer, to elsewhere", peer, 0, in(pb, "8.8.8.8"), "foreign_destination"},
		{"from a peer, a tunnel in the tunnel", peer, 0, inner(t, pb, gw, 8285, 64, string(in(pb, pa))), "nested"},
		{"from a peer, TTL 0", peer, 0, inner(t, pb, pa, secretPort, 0, "forged"), "ttl"},
		{"from a peer, congestion that it cannot carry", peer, 3, in(pb, pa), "ecn"},
		{"from a peer, cut short", peer, 0, in(pb, pa)[:30], "malformed"},
	}
}

// No forged packet reaches a pod. Each is counted once, for its reason, with its sender.
func TestNoPacketFromStrangers(t *testing.T) {
	l := shared(t, ipv4Only)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	h := newcomer(t, l, 66)
	stranger := netip.MustParseAddr("198.18.0.66")
	ear := listenUDP(t, a, secretPort)
	before := still(t, a.Node).Counters.Ingress
	known := weftJSON[peersJSON](t, a.Node, "peers")
	want := map[string]uint64{}
	forged := forgeries(t, a, b, stranger)
	for _, f := range forged {
		want[f.reason]++
		forge(t, h, outer{f.from, a.Node.Underlay4, f.tos, f.inner})
		status(t, a.Node, await.Patience, func(s statusJSON) error {
			if n := s.Counters.Ingress.dropped(f.reason) - before.dropped(f.reason); n != want[f.reason] {
				return fmt.Errorf("%s: %d dropped as %s, want %d; all: %+v", f.name, n, f.reason, want[f.reason],
					s.Counters.Ingress.Drops)
			}
			return nil
		})
	}
	after := booked(t, a.Node).Counters.Ingress
	// What was delivered meanwhile are the nodes' own questions to each other, some in ten seconds. That none is
	// forged the ear shows.
	if n := after.Received - before.Received - (after.Delivered - before.Delivered); n != uint64(len(forged)) {
		t.Errorf("of %d forged packets %d were dropped, beside %d delivered: before %+v, after %+v", len(forged), n,
			after.Delivered-before.Delivered, before, after)
	}
	blamed(t, a.Node, before, known, want, stranger)
	hearsFirst(t, ear, b, netip.AddrPortFrom(a.V4, secretPort))
	_ = ear.Close()
	podsForge(t, l, a, b, []int{4})
}

// blamed checks that weft peers and /metrics have every reason, so often more than before.
func blamed(t *testing.T, n *lab.Node, before flowJSON, known peersJSON, want map[string]uint64,
	stranger netip.Addr) {
	p := weftJSON[peersJSON](t, n, "peers")
	if len(p.Peers) != 1 || len(p.Strangers) != 1 || p.Strangers[0].Address != stranger ||
		p.Strangers[0].Packets != want["unknown_peer"] || !strings.Contains(p.Strangers[0].Admit, "SourceCheck") {
		t.Fatalf("%+v", p)
	}
	metrics, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for reason, packets := range want {
		if got := dropsOf(p.Peers[0].Drops, reason) - dropsOf(known.Peers[0].Drops, reason); reason !=
			"unknown_peer" && got != packets {
			t.Errorf("weft peers has %d packets of %s for %s, want %d", got, p.Peers[0].Name, reason, packets)
		}
		line := fmt.Sprintf("\nweft_dropped_packets_total{direction=\"ingress\",reason=%q} %d\n", reason,
			before.dropped(reason)+packets)
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	text, _, err := weft(t, n, "peers")
	if err != nil || !strings.Contains(text, "AllowedSources") || !strings.Contains(text, stranger.String()) {
		t.Errorf("weft peers does not name the remedy: %v\n%s", err, text)
	}
}

func listenUDP(t *testing.T, p *lab.Pod, port int) *net.UDPConn {
	t.Helper()
	return listenOn(t, p, netip.AddrPortFrom(p.V4, uint16(port)))
}

// listenOn opens a socket in a pod. A socket of that address that was closed a moment ago may live on in a
// child that another scenario has forked, until it executes its program: so an address in use is waited for.
func listenOn(t *testing.T, p *lab.Pod, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	await.OK(t, "a socket at "+at.String(), func() error {
		return p.Do(func() (err error) {
			c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hearsFirst has a pod send an honest datagram, which has to be the first one that the ear hears.
func hearsFirst(t *testing.T, ear *net.UDPConn, from *lab.Pod, to netip.AddrPort) {
	t.Helper()
	c, err := from.NS.Dial(t.Context(), "udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("honest")); err != nil {
		t.Fatal(err)
	}
	if err := ear.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	n, src, err := ear.ReadFromUDPAddrPort(buf)
	if own := from.V4; err != nil || string(buf[:n]) != "honest" ||
		src.Addr().Unmap() != own && src.Addr() != from.V6 {
		t.Errorf("at %v %q was heard from %v (%v), want what is honest from %v", to, buf[:n], src, err, own)
	}
}
