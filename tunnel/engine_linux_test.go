package tunnel_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

const (
	udpPort = 8285
	within  = 5 * time.Second
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func outer(s string) netip.AddrPort { return netip.AddrPortFrom(addr(s), udpPort) }

func prefixes(ss ...string) (l []netip.Prefix) {
	for _, s := range ss {
		l = append(l, netip.MustParsePrefix(s))
	}
	return l
}

// spec is node A: 10.1.1.0/24 at 192.0.2.1, with three peers.
func spec() tunnel.Spec {
	return tunnel.Spec{
		Local:    prefixes("10.1.1.0/24", "fd00:1:1::/64"),
		Address4: addr("10.1.1.0"), Address6: addr("fd00:1:1::"),
		Self:        []netip.Addr{addr("192.0.2.1")},
		UnderlayMTU: 1500,
		Check:       tunnel.CheckStrict,
		Peers: []tunnel.PeerSpec{
			{Name: "b", Addr: addr("192.0.2.2"), Weft: true, Subnets: prefixes("10.1.2.0/24", "fd00:1:2::/64"),
				InnerSources: []netip.Addr{addr("192.0.2.2")}},
			{Name: "flannel", Addr: addr("192.0.2.3"), Subnets: prefixes("10.1.3.0/24", "fd00:1:3::/64")},
			{Name: "small", Addr: addr("192.0.2.4"), Weft: true, MTU: 1300, Sources: []netip.Addr{addr("192.0.2.44")},
				Subnets: prefixes("10.1.4.0/24", "fd00:1:4::/64")},
		},
	}
}

// node is an engine over two ports in memory.
type node struct {
	*tunnel.Engine
	host, wire *tunneltest.Port
}

// start runs an engine with spec s until the test ends.
func start(t testing.TB, s tunnel.Spec, cfg tunnel.Config) *node {
	t.Helper()
	if cfg.Port = udpPort; cfg.Format == 0 {
		cfg.Format = encap.FormatIP
	}
	e, err := tunnel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Engine: e, host: memory(t, netip.AddrPort{}), wire: memory(t, outer("192.0.2.1"))}
	if _, err := e.Attach(n.host, tunnel.RoleHost); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Attach(n.wire, tunnel.RoleUnderlay); err != nil {
		t.Fatal(err)
	}
	swapTo(t, e, cfg.Format, s)
	running(t, e)
	return n
}

// running runs an engine until the test ends.
func running(t testing.TB, e *tunnel.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(within):
			t.Error("Run does not end after cancel")
		}
	})
}

func swap(t testing.TB, e *tunnel.Engine, s tunnel.Spec) {
	t.Helper()
	swapTo(t, e, encap.FormatIP, s)
}

func swapTo(t testing.TB, e *tunnel.Engine, f encap.Format, s tunnel.Spec) {
	t.Helper()
	table, err := tunnel.NewTable(f, s)
	if err != nil {
		t.Fatal(err)
	}
	e.Swap(table)
}

func memory(t testing.TB, local netip.AddrPort) *tunneltest.Port {
	t.Helper()
	p, err := tunneltest.New(local, 256, 65535)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// udp4 encodes an IPv4 UDP packet with an encoder that is not ours.
func udp4(t testing.TB, src, dst string, size int, change func(*layers.IPv4)) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
		SrcIP: net.ParseIP(src).To4(), DstIP: net.ParseIP(dst).To4()}
	if change != nil {
		change(ip)
	}
	u := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	_ = u.SetNetworkLayerForChecksum(ip)
	return encode(t, ip, u, gopacket.Payload(bytes.Repeat([]byte{0xa5}, size)))
}

func udp6(t testing.TB, src, dst string, size int) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP(src),
		DstIP: net.ParseIP(dst)}
	u := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	_ = u.SetNetworkLayerForChecksum(ip)
	return encode(t, ip, u, gopacket.Payload(bytes.Repeat([]byte{0xa5}, size)))
}

func encode(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		l...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCarries sends one packet of each kind each way and compares the bytes.
func TestCarries(t *testing.T) {
	n := start(t, spec(), tunnel.Config{})
	ecn6 := udp6(t, "fd00:1:1::5", "fd00:1:2::7", 9)
	ecn6[1] |= byte(encap.ECT0) << 4
	send := map[string]struct {
		packet []byte
		to     netip.AddrPort
		ecn    encap.ECN
	}{
		"IPv4 to weft":    {udp4(t, "10.1.1.5", "10.1.2.7", 100, nil), outer("192.0.2.2"), 0},
		"IPv6 to weft":    {udp6(t, "fd00:1:1::5", "fd00:1:2::7", 100), outer("192.0.2.2"), 0},
		"IPv4 to flannel": {udp4(t, "10.1.1.5", "10.1.3.7", 1, nil), outer("192.0.2.3"), 0},
		"a full one":      {udp4(t, "10.1.1.5", "10.1.2.7", 1472-28, nil), outer("192.0.2.2"), 0},
		"ECT(0) to weft is copied out": {udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) {
			ip.TOS = 2
		}), outer("192.0.2.2"), encap.ECT0},
		"ECT(0) to flannel stays inside": {udp4(t, "10.1.1.5", "10.1.3.7", 9, func(ip *layers.IPv4) {
			ip.TOS = 2
		}), outer("192.0.2.3"), 0},
		"ECT(1) to weft is copied out": {udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) {
			ip.TOS = 1
		}), outer("192.0.2.2"), encap.ECT1},
		"CE to weft is copied out": {udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) {
			ip.TOS = 3
		}), outer("192.0.2.2"), encap.CE},
		"CE to flannel stays inside": {udp4(t, "10.1.1.5", "10.1.3.7", 9, func(ip *layers.IPv4) {
			ip.TOS = 3
		}), outer("192.0.2.3"), 0},
		"IPv6, ECT(0) is copied out": {ecn6, outer("192.0.2.2"), encap.ECT0},
		"from the TUN the TTL is untouched": {udp4(t, "10.1.1.5", "10.1.2.7", 9, func(ip *layers.IPv4) {
			ip.TTL = 1
		}), outer("192.0.2.2"), 0},
	}
	for name, tt := range send {
		t.Run("egress/"+name, func(t *testing.T) {
			n.host.Inject(tunneltest.Datagram{Data: tt.packet})
			d, ok := n.wire.Next(within)
			if !ok {
				t.Fatalf("nothing was sent; stats %+v", n.Stats())
			}
			if !bytes.Equal(d.Data, tt.packet) || d.Outer != tt.to || d.ECN != tt.ecn {
				t.Errorf("sent %x\nto %v with ECN %v, want %x\nto %v with %v", d.Data, d.Outer, d.ECN, tt.packet,
					tt.to, tt.ecn)
			}
		})
	}
	marked := udp4(t, "10.1.2.7", "10.1.1.5", 9, func(ip *layers.IPv4) { ip.TOS = 3 })
	receive := map[string]struct {
		d    tunneltest.Datagram
		want []byte
	}{
		"IPv4": {tunneltest.Datagram{Outer: outer("192.0.2.2"),
			Data: udp4(t, "10.1.2.7", "10.1.1.5", 100, nil)}, udp4(t, "10.1.2.7", "10.1.1.5", 100, nil)},
		"IPv6": {tunneltest.Datagram{Outer: outer("192.0.2.2"),
			Data: udp6(t, "fd00:1:2::7", "fd00:1:1::5", 100)}, udp6(t, "fd00:1:2::7", "fd00:1:1::5", 100)},
		"from another port": {tunneltest.Datagram{Outer: netip.MustParseAddrPort("192.0.2.2:999"),
			Data: udp4(t, "10.1.2.7", "10.1.1.5", 1, nil)}, udp4(t, "10.1.2.7", "10.1.1.5", 1, nil)},
		"from a further addr": {tunneltest.Datagram{Outer: outer("192.0.2.44"),
			Data: udp4(t, "10.1.4.7", "10.1.1.5", 1, nil)}, udp4(t, "10.1.4.7", "10.1.1.5", 1, nil)},
		"from the peer itself": {tunneltest.Datagram{Outer: outer("192.0.2.2"),
			Data: udp4(t, "192.0.2.2", "10.1.1.5", 1, nil)}, udp4(t, "192.0.2.2", "10.1.1.5", 1, nil)},
		"64 KB": {tunneltest.Datagram{Outer: outer("192.0.2.2"),
			Data: udp4(t, "10.1.2.7", "10.1.1.5", 65000, nil)}, udp4(t, "10.1.2.7", "10.1.1.5", 65000, nil)},
		"padded": {tunneltest.Datagram{Outer: outer("192.0.2.2"),
			Data: append(udp4(t, "10.1.2.7", "10.1.1.5", 9, nil), 0, 0, 0)}, udp4(t, "10.1.2.7", "10.1.1.5", 9, nil)},
		"outer CE marks ECT(0)": {tunneltest.Datagram{Outer: outer("192.0.2.2"), ECN: encap.CE,
			Data: udp4(t, "10.1.2.7", "10.1.1.5", 9, func(ip *layers.IPv4) { ip.TOS = 2 })}, marked},
	}
	for name, tt := range receive {
		t.Run("ingress/"+name, func(t *testing.T) {
			n.wire.Inject(tt.d)
			d, ok := n.host.Next(within)
			if !ok {
				t.Fatalf("nothing was delivered; stats %+v", n.Stats())
			}
			if !bytes.Equal(d.Data, tt.want) {
				t.Errorf("delivered %x\nwant      %x", d.Data, tt.want)
			}
		})
	}
}

// TestPodPorts runs 200 pods' ports through two workers: every pod reaches the
// next one, a peer, and the host, while other ports come and go.
func TestPodPorts(t *testing.T) {
	const pods = 200
	n := start(t, spec(), tunnel.Config{Workers: 2})
	ip := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 10)}) }
	ports := make([]*tunneltest.Port, pods)
	for i := range ports {
		var err error
		if ports[i], err = tunneltest.New(netip.AddrPort{}, 16, 2048); err != nil {
			t.Fatal(err)
		}
		if _, err = n.Attach(ports[i], tunnel.RolePod, ip(i)); err != nil {
			t.Fatal(err)
		}
	}
	churned := make(chan error, 1)
	stop := make(chan struct{})
	go func() { churned <- churn(n.Engine, stop) }()
	for round := range 20 {
		for i, p := range ports {
			next := ip((i + 1) % pods)
			for _, dst := range []string{next.String(), "10.1.2.9", "198.51.100.1"} {
				if !p.Inject(tunneltest.Datagram{Data: udp4(t, ip(i).String(), dst, 10+round, nil)}) {
					t.Fatalf("round %d: pod %d does not read", round, i)
				}
			}
		}
		for i, p := range ports {
			d, ok := p.Next(within)
			if !ok {
				t.Fatalf("round %d: nothing for pod %d; stats %+v", round, i, n.Stats())
			}
			want := udp4(t, ip((i+pods-1)%pods).String(), ip(i).String(), 10+round, func(ip *layers.IPv4) {
				ip.TTL = 63
			})
			if !bytes.Equal(d.Data, want) {
				t.Fatalf("round %d: pod %d got %x, want %x", round, i, d.Data, want)
			}
		}
		for i := range pods {
			if _, ok := n.wire.Next(within); !ok {
				t.Fatalf("round %d: %d packets to the peer, want %d", round, i, pods)
			}
			if _, ok := n.host.Next(within); !ok {
				t.Fatalf("round %d: %d packets to the host, want %d", round, i, pods)
			}
		}
	}
	close(stop)
	if err := <-churned; err != nil {
		t.Error(err)
	}
	s := settled(t, n, 20*3*pods)
	if s.Egress.Delivered != 20*3*pods {
		t.Errorf("delivered %d, want %d", s.Egress.Delivered, 20*3*pods)
	}
	balanced(t, s)
}

// churn attaches and detaches ports until stop.
func churn(e *tunnel.Engine, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		p, err := tunneltest.New(netip.AddrPort{}, 4, 2048)
		if err != nil {
			return err
		}
		id, err := e.Attach(p, tunnel.RolePod, addr("10.1.1.3"))
		if err != nil {
			return fmt.Errorf("attach %d: %w", i, err)
		}
		p.Inject(tunneltest.Datagram{Data: []byte{0x45}})
		if err := e.Detach(id); err != nil {
			return fmt.Errorf("detach %d: %w", i, err)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	n := start(t, spec(), tunnel.Config{})
	for name, tt := range map[string]struct {
		p    port.Port
		role tunnel.Role
	}{
		"a second host":     {memory(t, netip.AddrPort{}), tunnel.RoleHost},
		"a second underlay": {memory(t, outer("192.0.2.9")), tunnel.RoleUnderlay},
		"no role":           {memory(t, netip.AddrPort{}), 0},
	} {
		if _, err := n.Attach(tt.p, tt.role); err == nil {
			t.Errorf("%s is attached", name)
		}
		_ = tt.p.Close()
	}
	if err := n.Detach(99); err == nil {
		t.Error("a port that is not there is detached")
	}
	for name, cfg := range map[string]tunnel.Config{"no format": {Port: 1},
		"no port": {Format: encap.FormatIP}} {
		if _, err := tunnel.New(cfg); err == nil {
			t.Errorf("an engine with %s is made", name)
		}
	}
}

// TestSwapWritesNothingThatWorkersRead swaps tables while packets move: they share the peers that are the
// same in both. The race detector watches.
func TestSwapWritesNothingThatWorkersRead(t *testing.T) {
	n := start(t, spec(), tunnel.Config{})
	table, err := tunnel.NewTable(encap.FormatIP, spec())
	if err != nil {
		t.Fatal(err)
	}
	n.Swap(table)
	packet := udp4(t, "10.1.1.5", "10.1.2.7", 100, nil)
	for i := range 100 {
		n.host.Inject(tunneltest.Datagram{Data: packet})
		if table, err = table.Next(spec()); err != nil {
			t.Fatal(err)
		}
		n.Swap(table)
		if _, ok := n.wire.Next(within); !ok {
			t.Fatalf("packet %d does not arrive", i)
		}
	}
}
