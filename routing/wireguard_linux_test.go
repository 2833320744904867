package routing

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

const userWireGuard = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"wireguard","Userspace":"always"%s}}`

// wireGuardNodes makes hosts on one Ethernet with backends of type wireguard, which know each other and run.
func wireGuardNodes(t *testing.T, count int, keys string) ([]*vtepNode, *kernel.Kernel) {
	t.Helper()
	nodes, bridge := hosts(t, count)
	for _, n := range nodes {
		n.openWireGuard(t, keys, t.TempDir())
	}
	joinVTEPs(t, nodes)
	return nodes, bridge
}

// openWireGuard makes the node's backend and runs it.
func (n *vtepNode) openWireGuard(t *testing.T, keys, stateDir string) (stop func()) {
	t.Helper()
	network, err := Parse(fmt.Appendf(nil, userWireGuard, keys))
	if err != nil {
		t.Fatal(err)
	}
	c := BackendConfig{Kernel: n.k, Network: network, Node: n.own.V4.String(), StateDir: stateDir,
		UnderlayOptions: underlay.Options{IPv4: true, IPv6: true, Interfaces: []string{"eth0"}}}
	if c.Underlay, err = underlay.Choose(n.k, c.UnderlayOptions); err != nil {
		t.Fatal(err)
	}
	if n.b, err = NewNode(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n.own.BackendType = n.b.RecordType()
	n.own.BackendData, n.own.BackendV6Data = n.b.Publish()
	k := &kernelTest{Node: n.b, t: t}
	k.start()
	return k.stop
}

// hears waits until a datagram from one node reaches another.
func hears(t *testing.T, from, to *vtepNode, six bool) {
	t.Helper()
	in, out := to.listen(t, to.addr(six)), from.listen(t, from.addr(six))
	defer func() { _ = errors.Join(in.Close(), out.Close()) }()
	await.OK(t, "the first packet", func() error {
		_, _ = out.WriteTo([]byte("x"), in.LocalAddr())
		_ = in.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _, err := in.ReadFrom(make([]byte, 1))
		return err
	})
}

// TestWireGuardNodesTalk has streams and datagrams of every kind of size arrive whole, over both outer
// families, with two devices and with one.
func TestWireGuardNodesTalk(t *testing.T) {
	const psk = `,"PSK":"AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="`
	for name, keys := range map[string]string{
		"separate": psk, "auto": `,"Mode":"auto"`, "ipv6": `,"Mode":"ipv6","PersistentKeepaliveInterval":25` + psk,
	} {
		t.Run(name, func(t *testing.T) {
			ns, _ := wireGuardNodes(t, 2, keys)
			for _, six := range []bool{false, true} {
				hears(t, ns[0], ns[1], six)
				streams(t, ns[0], ns[1], six)
				streams(t, ns[1], ns[0], six)
				datagrams(t, ns[0], ns[1], six)
			}
			for i, n := range ns {
				st := n.b.Status()
				devices := map[bool]string{true: "[flannel-wg flannel-wg-v6]", false: "[flannel-wg]"}[name == "separate"]
				if !st.InPlace || !st.Up || st.MTU != 1420 || st.Peers != 1 || len(st.Reached) != 2 || fmt.Sprint(st.Devices) != devices || st.Path != PathUserspace {
					t.Errorf("status %+v", st)
				}
				ps, err := n.b.EncryptedPeers()
				if err != nil || len(ps) != len(st.Devices) {
					t.Fatalf("%+v, %v", ps, err)
				}
				for _, p := range ps {
					if p.Handshake.IsZero() || p.Rx < 6<<20 || p.Tx < 6<<20 || p.Key != ns[1-i].b.driver.(*wireGuardDriver).public() ||
						p.Endpoint.Addr().Is6() != (name == "ipv6" || p.Device == "flannel-wg-v6") {
						t.Errorf("peer %+v", p)
					}
				}
			}
		})
	}
}

// TestWireGuardHidesWhatItCarries captures all that crosses the wire: nothing of an inner packet is seen, and
// all of it is WireGuard's.
func TestWireGuardHidesWhatItCarries(t *testing.T) {
	ns, bridge := wireGuardNodes(t, 2, "")
	var fd int
	if err := bridge.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 3<<8) // all protocols, in network order
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	secret := bytes.Repeat([]byte("weft-plain-"), 100)
	for _, six := range []bool{false, true} {
		hears(t, ns[0], ns[1], six)
		in, out := ns[1].listen(t, ns[1].addr(six)), ns[0].listen(t, ns[0].addr(six))
		if _, err := out.WriteTo(secret, in.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2000)
		_ = in.SetReadDeadline(time.Now().Add(await.Patience))
		n, _, err := in.ReadFrom(buf)
		for err == nil && string(buf[:n]) == "x" { // late ones of hears, at the same port
			n, _, err = in.ReadFrom(buf)
		}
		if err != nil || !bytes.Equal(buf[:n], secret) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		_ = errors.Join(in.Close(), out.Close())
	}
	data, frame := 0, make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, frame, 0)
		if err != nil {
			break
		}
		if bytes.Contains(frame[:n], []byte("weft-plain-")) || bytes.Contains(frame[14:n], ns[1].addr(false).AsSlice()) {
			t.Fatalf("a frame shows what is inside: %x", frame[:n])
		}
		if bytes.Contains(frame[:n], []byte{4, 0, 0, 0}) { // a transport message
			data++
		}
	}
	if data < 4 { // each at both ports of the bridge
		t.Errorf("%d frames of WireGuard were seen", data)
	}
}

// TestWireGuardFollowsRecords adds, changes and removes peers: a subnet is reached by the key that its record
// has now, and only by it.
func TestWireGuardFollowsRecords(t *testing.T) {
	ns, _ := wireGuardNodes(t, 3, "")
	a, b, c := ns[0], ns[1], ns[2]
	hears(t, a, b, false)
	hears(t, b, c, true)
	// c's key is another one now, and its peers know.
	before, after, err := c.b.RotateKey(t.Context())
	if err != nil || before == after {
		t.Fatal(before, after, err)
	}
	c.own.BackendData, c.own.BackendV6Data = c.b.Publish()
	if !strings.Contains(string(c.own.BackendData), after.String()) {
		t.Fatalf("published %s", c.own.BackendData)
	}
	joinVTEPs(t, ns)
	hears(t, a, c, false)
	hears(t, c, b, true)
	for _, n := range []*vtepNode{a, b} {
		ps, err := n.b.EncryptedPeers()
		if err != nil || len(ps) != 4 || strings.Contains(fmt.Sprint(ps), before.String()) {
			t.Errorf("%v, %v", ps, err)
		}
	}
	// a has not heard of b's second key: nothing passes, and who has a wrong one is told apart by its
	// handshakes.
	if _, _, err := b.b.RotateKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, out := a.listen(t, a.addr(false)), b.listen(t, b.addr(false))
	for range 5 {
		_, _ = out.WriteTo([]byte("with a key that nobody knows"), in.LocalAddr())
	}
	_ = in.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, _, err := in.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes came with a wrong key", n)
	}
	_ = errors.Join(in.Close(), out.Close())
	// b leaves.
	s := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6}, Own: a.own, Peers: []lease.Record{c.own}}
	if err := a.b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if ps, err := a.b.EncryptedPeers(); err != nil || len(ps) != 2 {
		t.Errorf("%v, %v", ps, err)
	}
	hears(t, a, c, false) // whose session went on
}

// TestWireGuardRestarts has a node come back with its key from the file: its peers need not be told anything,
// and packets for them wait.
func TestWireGuardRestarts(t *testing.T) {
	nodes, _ := hosts(t, 2)
	a, b := nodes[0], nodes[1]
	dir := t.TempDir()
	stop := a.openWireGuard(t, "", dir)
	b.openWireGuard(t, "", t.TempDir())
	joinVTEPs(t, nodes)
	hears(t, b, a, false)
	key := a.b.driver.(*wireGuardDriver).public()
	stop()
	a.openWireGuard(t, "", dir)
	if a.b.driver.(*wireGuardDriver).public() != key {
		t.Fatal("the key is another one")
	}
	joinVTEPs(t, nodes[:1]) // its own set is still without peers
	joinVTEPs(t, nodes)
	hears(t, b, a, false)
	hears(t, b, a, true)
	out := netns.Command(t, "ls", "-l", filepath.Join(dir, WireGuardKeyFile))
	if !strings.HasPrefix(out, "-rw-------") {
		t.Errorf("%s", out)
	}
}
