package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// diary keeps a log.
type diary struct {
	mu sync.Mutex
	b  strings.Builder
}

func (d *diary) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.Write(b)
}

func (d *diary) has(s string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.b.String(), s)
}

// tooBig is an ICMP message that says that a datagram from 192.0.2.1 to 192.0.2.2 did not fit: what anybody
// can make up who knows the tunnel's port.
func tooBig(mtu int) []byte {
	m := []byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
	m = append(m, 0x45, 0, 0x05, 0xdc, 0, 1, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2)
	for range 2 {
		m = binary.BigEndian.AppendUint16(m, udpPort)
	}
	m = append(m, 0x05, 0xc8, 0, 0)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}

// told has the second host of o say so until the first one knows it, which known says.
func (o *overlay) told(t *testing.T, mtu int, known func() bool) {
	t.Helper()
	var icmp net.PacketConn
	o.hosts[1].Do(t, func() (err error) { icmp, err = net.ListenPacket("ip4:icmp", "192.0.2.2"); return err })
	defer icmp.Close()
	for end := time.Now().Add(within); !known(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing came of packet-too-big messages with %d: %+v", mtu, o.engines[0].Peers()[0])
		}
		if _, err := icmp.WriteTo(tooBig(mtu), &net.IPAddr{IP: net.IPv4(192, 0, 2, 1)}); err != nil {
			t.Fatal(err)
		}
	}
}

// passUnfragmented sends packets of that size through the tunnel that nobody may fragment, as QUIC does.
func (o *overlay) passUnfragmented(t *testing.T, size int) {
	t.Helper()
	var in, out net.Conn
	o.hosts[1].Do(t, func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 1, 2, 0), Port: 4433})
		return err
	})
	o.hosts[0].Do(t, func() (err error) { out, err = net.Dial("udp4", "10.1.2.0:4433"); return err })
	defer in.Close()
	defer out.Close()
	raw, err := out.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	})
	_ = in.SetReadDeadline(time.Now().Add(within))
	for i := range 20 {
		_, sent := out.Write(make([]byte, size-28))
		_, got := in.Read(make([]byte, size))
		if err = errors.Join(err, sent, got); err != nil {
			t.Fatalf("packet %d of %d bytes that is not to be fragmented: %v", i, size, err)
		}
	}
}

// TestForgedPathMTU says on every path that a datagram of 68 bytes is the most that passes, which is not so;
// and then that 600 bytes are, which has become so.
func TestForgedPathMTU(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]path{"portable": {portable: true, probed: true}, "socket": {probed: true},
		"raw": {raw: true, probed: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &diary{}
			a := p
			a.log = slog.New(slog.NewTextHandler(said, nil))
			o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{a, p})
			o.passUnfragmented(t, 1200)
			before := o.engines[1].Stats().Ingress
			o.told(t, 68, func() bool { return said.has("event=path_mtu ") })
			await.OK(t, "the claim is not believed", func() error { // an answer that comes late refutes it, too
				if peer := o.engines[0].Peers()[0]; peer.PathMTU != 0 {
					return fmt.Errorf("path MTU %d", peer.PathMTU)
				}
				return nil
			})
			if after := o.engines[1].Stats().Ingress; after.Drops != before.Drops {
				t.Errorf("probes count as packets: %+v before, %+v after", before, after)
			}
			o.passUnfragmented(t, 1200)

			o.hosts[1].Do(t, func() error {
				l, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return netlink.LinkSetMTU(l, 600) // what is longer is lost
			})
			// it is said a moment later
			o.told(t, 600, func() bool { return o.engines[0].Peers()[0].PathMTU != 0 && said.has("proven=true") })
			if peer := o.engines[0].Peers()[0]; peer.PathMTU != 600 {
				t.Errorf("path MTU %d, want the 600 that probes have proven", peer.PathMTU)
			}
			o.passUnfragmented(t, 600-28)
		})
	}
}

// TestProbesAreAnswered: those of peers that ask in the form that their record names, by one short datagram
// each. Of probes that ask whether they arrive whole, only those that do are answered.
func TestProbesAreAnswered(t *testing.T) {
	s := spec()
	s.Peers[0].Recv = port.Supported
	n := start(t, s, tunnel.Config{})
	probe := func(token uint64, size int) []byte {
		return append(encap.AppendProbe(nil, encap.Probe{Token: token}), make([]byte, size-encap.ProbeLen)...)
	}
	for _, from := range []string{"192.0.2.3", "192.0.2.4", "192.0.2.99"} {
		// flannel's, a former weft's, a stranger's
		n.wire.Inject(tunneltest.Datagram{Outer: outer(from), Data: probe(1, 1400)})
	}
	settled(t, n, 3)
	for i, size := range []int{encap.ProbeLen, 548, 1472} {
		n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: probe(uint64(7+i), size)})
		d, ok := n.wire.Next(within)
		want := encap.Probe{Answer: true, Length: uint16(size), Token: uint64(7 + i)}
		if got, err := encap.ParseProbe(d.Data); !ok || err != nil || got != want ||
			len(d.Data) != encap.ProbeLen || d.Outer != outer("192.0.2.2") {
			t.Errorf("%d bytes were answered to %v by %x, want %+v in %d bytes", size, d.Outer, d.Data, want,
				encap.ProbeLen)
		}
	}
	whole := encap.AppendProbe(nil, encap.Probe{Whole: true, Length: 512, Token: 99})
	broken := bytes.Clone(whole)
	broken[400] ^= 1
	for _, b := range [][]byte{broken, whole[:511], whole} { // the last one is answered
		n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: b})
	}
	d, ok := n.wire.Next(within)
	if got, err := encap.ParseProbe(d.Data); !ok || err != nil ||
		got != (encap.Probe{Answer: true, Length: 512, Token: 99}) {
		t.Errorf("answered by %x", d.Data)
	}
	settled(t, n, 5) // a datagram may be answered before it is counted
	in := n.Stats().Ingress
	if d := in.Drops; in.Received != 5 || d[port.DropMalformed] != 4 || d[port.DropUnknownPeer] != 1 {
		t.Errorf("counted as packets: %+v", in)
	}
	if d, ok := n.wire.Next(0); ok {
		t.Errorf("one answer too many, to %v: %x", d.Outer, d.Data)
	}
}
