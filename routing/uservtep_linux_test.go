package routing

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
)

// vtepNode is one host of a vxlan network: a namespace and a backend, of the kernel's or in user space.
type vtepNode struct {
	node
	b *Node
}

const userVXLAN = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"vxlan","VNI":7,%s}}`

// vtepNodes makes hosts on one Ethernet, each with its own keys of the Backend object, which know
// each other and run.
func vtepNodes(t *testing.T, keys ...string) []*vtepNode {
	t.Helper()
	nodes, _ := hosts(t, len(keys))
	for i, n := range nodes {
		n.open(t, keys[i])
	}
	joinVTEPs(t, nodes)
	return nodes
}

// hosts makes hosts on one Ethernet, whose bridge is in a namespace of its own.
func hosts(t *testing.T, count int) (nodes []*vtepNode, bridge *kernel.Kernel) {
	t.Helper()
	bridge = aloneInNamespace(t)
	sh := func(k *kernel.Kernel, args string) {
		t.Helper()
		if err := k.Do(func() error { _, err := netns.TryIP(args); return err }); err != nil {
			t.Fatal(err)
		}
	}
	sh(bridge, "link add br0 type bridge")
	sh(bridge, "link set br0 up")
	for i := range count {
		n := &vtepNode{node: node{k: newNamespace(t), own: vxlanPeer(i + 1)}}
		sh(n.k, "link set lo up")
		sh(bridge, fmt.Sprintf("link add port%d type veth peer name far", i))
		sh(bridge, fmt.Sprintf("link set far netns /proc/%d/fd/%d", os.Getpid(), n.k.NS))
		sh(bridge, fmt.Sprintf("link set port%d master br0 up", i))
		for _, args := range []string{"link set far name eth0", "link set eth0 up",
			fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", i+1), fmt.Sprintf("addr add 2001:db8::%d/64 dev eth0 nodad", i+1)} {
			sh(n.k, args)
		}
		nodes = append(nodes, n)
	}
	return nodes, bridge
}

// open makes the node's backend and runs it.
func (n *vtepNode) open(t *testing.T, keys string) {
	t.Helper()
	network, err := Parse(fmt.Appendf(nil, userVXLAN, keys))
	if err != nil {
		t.Fatal(err)
	}
	c := BackendConfig{Kernel: n.k, Network: network, Node: n.own.V4.String(),
		UnderlayOptions: underlay.Options{IPv4: true, IPv6: true, Interfaces: []string{"eth0"}}}
	if c.Underlay, err = underlay.Choose(n.k, c.UnderlayOptions); err != nil {
		t.Fatal(err)
	}
	if n.b, err = NewNode(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if n.b.Engine() == nil {
		(&kernelTest{Node: n.b, t: t}).start()
	} else {
		n.u = n.b
		start(t, n.u)
	}
	n.own.BackendType = n.b.RecordType()
	n.own.BackendData, n.own.BackendV6Data = n.b.Publish()
}

// joinVTEPs tells every node of every other.
func joinVTEPs(t *testing.T, nodes []*vtepNode) {
	t.Helper()
	for _, n := range nodes {
		s := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6}, Own: n.own}
		for _, o := range nodes {
			if o != n {
				s.Peers = append(s.Peers, o.own)
			}
		}
		if err := n.b.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// addr is the node's own address in the overlay.
func (n *vtepNode) addr(six bool) netip.Addr {
	if six {
		return n.own.V6.Addr()
	}
	return n.own.V4.Addr()
}

// taken is what the host has taken from a node's device.
func (n *vtepNode) taken(t *testing.T) (bytes, packets uint64) {
	t.Helper()
	var l netlink.Link
	err := n.k.Do(func() (err error) { l, err = netlink.LinkByName(n.b.Status().Device()); return err })
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Statistics.RxBytes, l.Attrs().Statistics.RxPackets
}

// streams sends random bytes by TCP from one node to another.
func streams(t *testing.T, from, to *vtepNode, six bool) {
	t.Helper()
	const size = 6 << 20
	var l net.Listener
	if err := to.k.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to.addr(six), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var c net.Conn
	if err := from.k.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
		return err
	}); err != nil {
		t.Fatalf("%v: %v", l.Addr(), err)
	}
	data := make([]byte, size)
	for i, r := 0, rand.NewChaCha8([32]byte{1}); i < len(data); i += 4096 {
		_, _ = r.Read(data[i:min(i+4096, len(data))]) // it never fails
	}
	sent := make(chan error, 1)
	go func() {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, err := c.Write(data)
		sent <- errors.Join(err, c.Close())
	}()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	_ = in.SetDeadline(time.Now().Add(30 * time.Second))
	h := sha256.New()
	n, err := io.Copy(h, in)
	if sum := sha256.Sum256(data); err != nil || <-sent != nil || n != size || !bytes.Equal(h.Sum(nil), sum[:]) {
		t.Errorf("TCP from %v to %v: %d bytes, %v", from.addr(six), to.addr(six), n, err)
	}
}

// datagrams sends UDP of every kind of size, and a batch that the kernel may keep as one superpacket.
func datagrams(t *testing.T, from, to *vtepNode, six bool) {
	t.Helper()
	in, out := to.listen(t, to.addr(six)), from.listen(t, from.addr(six))
	defer func() { _ = errors.Join(in.Close(), out.Close()) }()
	buf := make([]byte, 1<<16)
	expect := func(what string, want []byte) {
		t.Helper()
		_ = in.SetReadDeadline(time.Now().Add(await.Patience))
		n, _, err := in.ReadFrom(buf)
		if err != nil || !bytes.Equal(buf[:n], want) {
			t.Errorf("%s from %v to %v: %d bytes, %v", what, from.addr(six), to.addr(six), n, err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcdefghijk"), 1000)
	for _, size := range []int{0, 1, 2, 3, 18, 63, 64, 511, 1000, 1381, 1382, 1383, 1401, 1402, 1403, 3000, 9001, 20000} {
		if _, err := out.WriteTo(data[:size], in.LocalAddr()); err != nil {
			t.Errorf("send %d bytes: %v", size, err)
			continue
		}
		expect(fmt.Sprint(size, " bytes"), data[:size])
	}
	raw, err := out.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("UDP_SEGMENT: %v", err)
	}
	if _, err := out.WriteTo(data[:20500], in.LocalAddr()); err != nil {
		t.Errorf("send a batch: %v", err)
	}
	for i := range 21 {
		expect("of a batch", data[i*1000:min(20500, i*1000+1000)])
	}
}

// TestUserVTEPsMix has nodes of both kinds talk, on every path, over both outer families. What the kernel's
// sends as superpackets reaches the host as such, on paths that have those.
func TestUserVTEPsMix(t *testing.T) {
	for _, path := range []string{"portable", "socket", "raw"} {
		t.Run(path, func(t *testing.T) {
			ns := vtepNodes(t, `"Userspace":"always","Path":"`+path+`"`, `"Userspace":"never"`, `"Userspace":"always","Path":"socket"`)
			a, kernel, other := ns[0], ns[1], ns[2]
			for _, six := range []bool{false, true} {
				await.OK(t, "the first packet", func() error {
					in, out := kernel.listen(t, kernel.addr(six)), a.listen(t, a.addr(six))
					defer func() { _ = errors.Join(in.Close(), out.Close()) }()
					_, _ = out.WriteTo([]byte("x"), in.LocalAddr())
					_ = in.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
					_, _, err := in.ReadFrom(make([]byte, 1))
					return err
				})
				for _, p := range [][2]*vtepNode{{a, kernel}, {kernel, a}, {a, other}, {other, kernel}} {
					before, packets := p[1].taken(t)
					streams(t, p[0], p[1], six)
					if p[1] == a {
						now, n := a.taken(t)
						size := (now - before) / max(n-packets, 1)
						t.Logf("IPv6 %v: TCP from the kernel's VTEP goes on in packets of %d bytes", six, size)
						if whole := size > 2*1430; whole != (path != "portable") {
							t.Errorf("IPv6 %v: superpackets stay whole: %v", six, whole)
						}
					}
					datagrams(t, p[0], p[1], six)
				}
			}
			for _, n := range []*vtepNode{a, other} {
				st, s := n.b.Status(), n.u.Engine().Stats()
				if st.Type != "vxlan" || st.MTU != 1430 || !st.InPlace || st.Peers != 2 || len(st.Reached) != 4 || n.b.RecordType() != "vxlan" || n.u.Recv() != nil {
					t.Errorf("%+v", st)
				}
				if want := map[*vtepNode]string{a: path, other: "socket"}[n]; st.Path != want {
					t.Errorf("path %s, want %s: %q", st.Path, want, st.Notes)
				}
				for r, drops := range s.Ingress.Drops {
					// The kernel answers what it cannot deliver to a link-local address.
					if drops > 0 {
						t.Errorf("%d dropped as %v", drops, tunnel.DropReason(r))
					}
				}
				if s.Completed == 0 {
					t.Error("no checksum came partial: the kernel's offloads were not tried")
				}
			}
		})
	}
}

// TestUserVTEPTakesThePort lets the data plane take over where the kernel's device was, and back.
func TestUserVTEPTakesThePort(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	config := func(how string) string {
		return `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","Userspace":"` + how + `"}}`
	}
	b := openKernelBackend(t, k, config("never"), nil)
	b.start()
	b.apply(kernelSet(b, vxlanPeer(2)))
	b.stop()
	ip(t, "link show flannel.1")

	open := func() *Node {
		t.Helper()
		network, err := Parse([]byte(config("always")))
		if err != nil {
			t.Fatal(err)
		}
		c := BackendConfig{Kernel: k, Network: network, Node: "a", UnderlayOptions: underlay.Options{IPv4: true, Interfaces: []string{"eth0"}}}
		if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
			t.Fatal(err)
		}
		u, err := NewNode(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u := open()
	data, _ := u.Publish()
	if was, _ := b.Publish(); string(data) != string(was) {
		t.Errorf("publishes %s, the kernel's was %s", data, was)
	}
	set := kernelSet(b, vxlanPeer(2))
	apply(t, u, set)
	stop := start(t, u)
	if out, err := netns.TryIP("link show flannel.1"); err == nil {
		t.Errorf("the kernel's device is left:\n%s", out)
	}
	if out := ip(t, "route show proto 119"); strings.TrimSpace(out) != "10.5.0.0/16 dev flannel0 scope link" {
		t.Errorf("routes %q", out)
	}
	stop()

	// One that is another program's stays, and is named.
	ip(t, "link add vx9 type vxlan id 9 dstport 8472 dev eth0")
	ip(t, "link set vx9 up")
	u = open()
	if err := u.Apply(t.Context(), set); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("with another program's device: %v", err)
	}
	start(t, u)
	ip(t, "link del vx9")
	await.OK(t, "the port is free", func() error {
		if st := u.Status(); !st.InPlace {
			return errors.New(st.LastError)
		}
		return nil
	})
}

// TestUserVTEPRoutesDirectly checks that the choice between a plain route and the tunnel follows the
// host's routes.
func TestUserVTEPRoutesDirectly(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	ip(t, "route add 198.51.100.0/24 via 192.0.2.254")
	far := vxlanPeer(3)
	far.PublicIP = addr("198.51.100.3")
	network, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"auto","Userspace":"always","Path":"portable"}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := BackendConfig{Kernel: k, Network: network, Node: "a", UnderlayOptions: underlay.Options{IPv4: true, Interfaces: []string{"eth0"}}}
	if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
		t.Fatal(err)
	}
	b, err := NewNode(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	u := b
	start(t, u)
	own := vxlanPeer(1)
	own.V6 = netip.Prefix{}
	apply(t, u, lease.Set{Config: network.NetworkConfig, Own: own, Peers: []lease.Record{vxlanPeer(2), far}})
	const all = "10.5.0.0/16 dev flannel0 scope link"
	routes := func(want ...string) func() error {
		return func() error {
			var got []string
			for l := range strings.Lines(netns.Command(t, "ip", "route", "show", "proto", "119")) {
				got = append(got, strings.TrimSpace(l))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("routes %q, want %q; %+v", got, want, u.Status().Reached)
			}
			return nil
		}
	}
	await.OK(t, "at first", routes(all, "10.5.2.0/24 via 192.0.2.2 dev eth0"))
	reached := u.Status().Reached
	if u.Type() != "auto" || u.RecordType() != "vxlan" {
		t.Errorf("type %q, in the record %q", u.Type(), u.RecordType())
	}
	if len(reached) != 2 || reached[0].How != HowRoute || !strings.Contains(reached[0].Reason, "eth0") || reached[1].How != HowTunnel || !strings.Contains(reached[1].Reason, "router 192.0.2.254") {
		t.Errorf("%+v", reached)
	}
	ip(t, "route add 198.51.100.3/32 dev eth0")
	await.OK(t, "the far one comes near", routes(all, "10.5.2.0/24 via 192.0.2.2 dev eth0", "10.5.3.0/24 via 198.51.100.3 dev eth0"))
	ip(t, "route del 198.51.100.3/32 dev eth0")
	ip(t, "route add 192.0.2.2/32 via 192.0.2.254")
	await.OK(t, "both go far", routes(all))
}

// TestNoVXLAN asks this kernel for a kind of link that it does not have: what it says is what a kernel
// without vxlan says about that.
func TestNoVXLAN(t *testing.T) {
	k := inNamespace(t)
	if err := k.ProbeVXLAN(); err != nil {
		t.Errorf("probe: %v", err)
	}
	if out := ip(t, "link"); strings.Contains(out, "weft-probe") {
		t.Errorf("the probe is left:\n%s", out)
	}
	if err := kernel.ProbeVXLANAside(); err != nil {
		t.Errorf("probe in a namespace of its own: %v", err)
	}
	k.VXLANKind = "weft-nosuch"
	if err := k.ProbeVXLAN(); !errors.Is(err, kernel.ErrNoVXLAN) {
		t.Errorf("probe for what there is not: %v", err)
	}
	for keys, want := range map[string]bool{`"vxlan"`: true, `"auto"`: true, `"vxlan","Userspace":"never"`: false} {
		// Each has its own namespace: a program that another test starts holds a closed socket for a moment.
		t.Run(keys, func(t *testing.T) {
			k := inNamespace(t)
			k.VXLANKind = "weft-nosuch"
			netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
			network, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":` + keys + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			c := BackendConfig{Kernel: k, Network: network, Node: "a", UnderlayOptions: underlay.Options{IPv4: true, Interfaces: []string{"eth0"}}}
			if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
				t.Fatal(err)
			}
			b, err := NewNode(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			user := b.Engine() != nil
			if user != want {
				t.Errorf("in user space: %t", user)
			}
			if user {
				own := vxlanPeer(1)
				own.V6 = netip.Prefix{}
				apply(t, b, lease.Set{Config: network.NetworkConfig, Own: own})
				if st := b.Status(); len(st.Notes) != 1 || !strings.Contains(st.Notes[0], "kernel") {
					t.Errorf("notes %q", st.Notes)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
