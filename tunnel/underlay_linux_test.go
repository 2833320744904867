package tunnel_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// sender is an engine with a host port in memory and a real underlay socket.
func sender(t *testing.T, h *host, local string, peers ...tunnel.PeerSpec) *node {
	t.Helper()
	return senderOver(t, h, local, 0, func(o port.UDPOptions) (port.Underlay, error) {
		return port.ListenUDP(o)
	}, peers...)
}

// senderOver is sender over another port, with workers and as many queues and lanes.
func senderOver(t *testing.T, h *host, local string, workers int,
	listen func(port.UDPOptions) (port.Underlay, error), peers ...tunnel.PeerSpec) *node {
	t.Helper()
	n := &node{host: memory(t, netip.AddrPort{})}
	var err error
	cfg := tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: workers}
	if n.Engine, err = tunnel.New(cfg); err != nil {
		t.Fatal(err)
	}
	h.Do(t, func() error {
		s, err := listen(port.UDPOptions{Local: outer(local), Queues: workers, Lanes: workers})
		if err != nil {
			return err
		}
		_, err = n.Attach(s, tunnel.RoleUnderlay)
		return err
	})
	if _, err := n.Attach(n.host, tunnel.RoleHost); err != nil {
		t.Fatal(err)
	}
	s := spec()
	s.Self, s.Peers = []netip.Addr{addr(local)}, peers
	swap(t, n.Engine, s)
	running(t, n.Engine)
	return n
}

// TestPathMTUOverARouter puts a narrower link behind a router, which quotes datagrams of each path, also
// those that left from a lane's port: the first packet is lost and teaches us, the next one is answered with
// the right MTU, and not sent. What goes to another peer is as large as before.
func TestPathMTUOverARouter(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]func(port.UDPOptions) (port.Underlay, error){
		"portable": func(o port.UDPOptions) (port.Underlay, error) { return port.ListenUDP(o) },
		"socket":   func(o port.UDPOptions) (port.Underlay, error) { return port.ListenOffload(o) },
		"raw":      func(o port.UDPOptions) (port.Underlay, error) { return openRaw(o) },
	} {
		for _, tt := range []struct {
			family, a, routerA, routerB, b, sysctl, bits string
			cost                                         int
		}{
			{"IPv4", "192.0.2.1", "192.0.2.254", "198.51.100.254", "198.51.100.2", "ipv4/ip_forward", "/24", 28},
			{"IPv6", "2001:db8:1::1", "2001:db8:1::fe", "2001:db8:2::fe", "2001:db8:2::2",
				"ipv6/conf/all/forwarding", "/64", 48},
		} {
			t.Run(name+"/"+tt.family, func(t *testing.T) {
				t.Parallel()
				a, r, b := newHost(t), newHost(t), newHost(t)
				r.Do(t, func() error {
					return errors.Join(os.WriteFile("/proc/sys/net/"+tt.sysctl, []byte("1"), 0o644),
						linkPair("toA", 1500, a), linkPair("toB", 1300, b),
						addAddr("toA", tt.routerA+tt.bits), addAddr("toB", tt.routerB+tt.bits))
				})
				for h, l := range map[*host][2]string{a: {tt.a, tt.routerA}, b: {tt.b, tt.routerB}} {
					h.Do(t, func() error { return errors.Join(addAddr("eth0", l[0]+tt.bits), defaultRoute(l[1])) })
				}
				lanes := 4
				if name == "portable" {
					lanes = 0
				}
				var under port.Underlay
				n := senderOver(t, a, tt.a, lanes, func(o port.UDPOptions) (_ port.Underlay, err error) {
					under, err = listen(o)
					return under, err
				}, tunnel.PeerSpec{Name: "b", Addr: addr(tt.b), Weft: true,
					Subnets: prefixes("10.1.2.0/24", "fd00:1:2::/64")},
					tunnel.PeerSpec{Name: "c", Addr: addr(tt.routerB), Weft: true, Subnets: prefixes("10.1.3.0/24")})
				aimAt(t, under, addr(tt.b), a, r, "toA")
				var in *net.UDPConn
				b.Do(t, func() (err error) {
					in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(tt.b), udpPort)))
					return err
				})
				defer in.Close()
				// The way is there, the kernel has confirmed it, and what follows leaves as frames where the path has
				// them.
				if got := sourcePort(t, n, in, flowTo(t, "10.1.2.7", 1, 100)); (got == udpPort) != (lanes == 0) {
					t.Fatalf("the source port is %d, and the tunnel's own %d", got, udpPort)
				}

				big := udp4(t, "10.1.1.5", "10.1.2.7", 1500-tt.cost-28, nil)
				n.host.Inject(tunneltest.Datagram{Data: big})
				learnt(t, n, 1300)
				if got := n.Peers()[0].MTU; got != 1300-tt.cost {
					t.Errorf("inner MTU %d, want 1300 - %d", got, tt.cost)
				}
				n.host.Inject(tunneltest.Datagram{Data: big})
				want := fmt.Sprintf("DestinationUnreachable(FragmentationNeeded) %d", 1300-tt.cost)
				if d, ok := n.host.Next(within); !ok || describeICMP(t, d.Data, big) != want {
					t.Errorf("the sender was told %x", d.Data)
				}
				await.OK(t, "what is known to be too big is not sent", func() error {
					if s := n.Stats(); s.Egress.Drops[port.DropTooBig] != 1 {
						return fmt.Errorf("%+v", s.Egress)
					}
					return nil
				})
				if other := n.Peers()[1]; other.Name != "c" || other.MTU != 1500-tt.cost || other.PathMTU != 0 {
					t.Errorf("of another peer %+v is known", other)
				}
				// 1272 and 1252 inside are less than IPv6 may be told: what it must be able to send goes out, or a
				// forged message would cut it off.
				for what, packet := range map[string][]byte{
					"as much to another peer": udp4(t, "10.1.1.5", "10.1.3.7", 1500-tt.cost-28, nil),
					"1280 bytes of IPv6":      udp6(t, "fd00:1:1::5", "fd00:1:2::7", 1280-48),
				} {
					before := accounted(t, n.Engine).Egress
					n.host.Inject(tunneltest.Datagram{Data: packet})
					if now := settled(t, n, before.Received+1).Egress; now.Delivered != before.Delivered+1 {
						t.Errorf("%s: it is not sent: %v", what, now.Drops)
					}
				}
			})
		}
	}
}

// linkPair makes a veth from here to eth0 of h.
func linkPair(name string, mtu int, h *host) error {
	la := netlink.NewLinkAttrs()
	la.Name, la.MTU = name, mtu
	v := netlink.NewVeth(la)
	v.PeerName, v.PeerMTU, v.PeerNamespace = "eth0", 1500, netlink.NsFd(h.FD())
	return netlink.LinkAdd(v)
}

func defaultRoute(via string) error {
	all := "0.0.0.0/0"
	if addr(via).Is6() {
		all = "::/0"
	}
	_, dst, err := net.ParseCIDR(all)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)})
}

// TestPeerWithoutDaemon sends to a host that answers every datagram with port
// unreachable: those errors must not cost packets to anyone.
func TestPeerWithoutDaemon(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	wire(t, a, b, "192.0.2.1/24", "192.0.2.2/24", 1500)
	b.Do(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0o644) })
	n := sender(t, a, "192.0.2.1", tunnel.PeerSpec{Name: "b", Addr: addr("192.0.2.2"), Weft: true,
		Subnets: prefixes("10.1.2.0/24")})
	p := udp4(t, "10.1.1.5", "10.1.2.7", 64, nil)
	const packets = 2000
	for i := uint64(0); i < packets; {
		if n.host.Inject(tunneltest.Datagram{Data: p}) {
			i++
			continue
		}
		settled(t, n, i)
	}
	s := settled(t, n, packets)
	if s.Egress.Delivered != packets {
		t.Errorf("%d of %d sent: %v", s.Egress.Delivered, packets, s.Egress.Drops)
	}
	// Its host says so, which is for us to know, and not for whoever sent the packets (RFC 2003 section 4.1).
	sent := uint64(packets)
	await.True(t, "what its host says is counted", func() bool {
		n.host.Inject(tunneltest.Datagram{Data: p})
		sent++
		settled(t, n, sent)
		u := n.Peers()[0].Unreachable
		return u.Count > 0 && u.Why == port.UnreachablePort
	})
	if d, ok := n.host.Next(0); ok {
		t.Errorf("the sender was told: %x", d.Data)
	}
}

// TestSocketFromDescriptor makes the underlay port of a socket opened elsewhere.
func TestSocketFromDescriptor(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	s, err := port.UDPFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if a := s.LocalAddr(); a.Addr() != addr("127.0.0.1") || a.Port() == 0 {
		t.Errorf("bound to %v", a)
	}
	if _, err := port.UDPFromFD(1 << 20); err == nil {
		t.Error("a descriptor that is none is taken")
	}
}

// TestSocketOverflowIsCountedAndKept fills the socket's buffer while nobody reads. The
// count is the kernel's, and does not go back when the socket is replaced.
func TestSocketOverflowIsCountedAndKept(t *testing.T) {
	e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort})
	if err != nil {
		t.Fatal(err)
	}
	var id tunnel.PortID
	var c net.Conn
	newHost(t).Do(t, func() error {
		s, err := port.ListenUDP(port.UDPOptions{Local: outer("127.0.0.1")})
		if err != nil {
			return err
		}
		if id, err = e.Attach(s, tunnel.RoleUnderlay); err != nil {
			return err
		}
		c, err = net.Dial("udp", outer("127.0.0.1").String())
		return err
	})
	defer func() { _ = c.Close() }()
	big := make([]byte, 60000)
	for range 1000 { // 60 MB: several times what the buffer can be
		if _, err := c.Write(big); err != nil {
			t.Fatal(err)
		}
	}
	running(t, e)
	await.Within(t, within, "an overflow that is counted", func() error {
		if e.Stats().SocketOverflow > 0 {
			return nil
		}
		return errors.New("none")
	})
	before := e.Stats().SocketOverflow
	if err := e.Detach(id); err != nil {
		t.Fatal(err)
	}
	if after := e.Stats().SocketOverflow; after < before {
		t.Errorf("%d before the socket was closed, %d after", before, after)
	}
}
