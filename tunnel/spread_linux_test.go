package tunnel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

func TestDefaultWorkers(t *testing.T) {
	for procs, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 4, 8: 8, 96: 8} {
		if got := tunnel.DefaultWorkers(procs); got != want {
			t.Errorf("%d workers on %d CPUs, want %d", got, procs, want)
		}
	}
	for workers, want := range map[int][2]int{1: {1, 1}, 2: {1, 1}, 4: {4, 4}, 6: {6, 4}, 8: {8, 8}} {
		e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{e.Queues(), e.Lanes()}; got != want {
			t.Errorf("%d workers have queues and lanes %v, want %v", workers, got, want)
		}
	}
}

// tunDevice is a TUN of either kind.
type tunDevice interface {
	port.Port
	Queues() []port.Queue
}

// TestTUNQueuesAreTakenUpAgain attaches to persistent devices that were made with one queue, and
// with several, for one and for several; and never beside somebody who has the device.
func TestTUNQueuesAreTakenUpAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for kind, open := range map[string]func(port.TUNOptions) (tunDevice, error){
		"plain":   func(o port.TUNOptions) (tunDevice, error) { return port.OpenTUN(o) },
		"offload": func(o port.TUNOptions) (tunDevice, error) { return port.OpenOffloadTUN(o) },
	} {
		for made, want := range map[int][3]int{1: {1, 1, 1}, 4: {1, 4, 2}} {
			name := fmt.Sprintf("%s%d", kind, made)
			h.Do(t, func() error {
				first, err := open(port.TUNOptions{Name: name, Queues: made})
				if err != nil {
					return err
				}
				if got := len(first.Queues()); got != made {
					t.Errorf("%s: %d queues of %d", name, got, made)
				}
				for i, queues := range []int{1, 4, 2} {
					if err := first.Close(); err != nil {
						return err
					}
					if first, err = open(port.TUNOptions{Name: name, Queues: queues}); err != nil {
						return fmt.Errorf("%s taken up with %d queues: %w", name, queues, err)
					}
					if got := len(first.Queues()); got != want[i] {
						t.Errorf("%s taken up with %d queues has %d, want %d", name, queues, got, want[i])
					}
					for _, more := range []int{1, 4} {
						if other, err := open(port.TUNOptions{Name: name, Queues: more}); !errors.Is(err, unix.EBUSY) {
							t.Errorf("%s in use, opened for %d queues: %v, %v; want EBUSY", name, more, other, err)
						}
					}
				}
				return first.Close()
			})
		}
	}
}

// TestFlowsKeepTheirOrder sends 200 UDP flows of numbered datagrams through four workers on each side,
// both ways at once, and wants every one, in its place.
func TestFlowsKeepTheirOrder(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for _, p := range []path{{many: 4}, {many: 4, raw: true}} {
		t.Run(fmt.Sprintf("raw=%v", p.raw), func(t *testing.T) {
			o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{p, p})
			errs := make(chan error, 2)
			ends := [2]*flood{newFlood(t, o, 0), newFlood(t, o, 1)}
			for _, f := range ends {
				go func() { errs <- f.run() }()
			}
			for range ends {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			for i, e := range o.engines {
				balanced(t, e.Stats())
				for k, w := range e.Workers() {
					if w.Egress == 0 || w.Ingress == 0 {
						t.Errorf("engine %d: worker %d has no share: %+v", i, k, e.Workers())
					}
					if w.Reads == 0 || w.Reads > w.Egress+w.Ingress || w.Writes == 0 || w.Busy <= 0 {
						t.Errorf("engine %d: worker %d read, wrote or worked nothing, or read more often than there were "+
							"packets: %+v", i, k, w)
					}
				}
			}
		})
	}
}

// flood is many numbered flows from one host of an overlay to the other.
type flood struct {
	in  *net.UDPConn
	out []net.Conn
}

func newFlood(t *testing.T, o *overlay, from int) *flood {
	t.Helper()
	const flows = 200
	f := &flood{}
	o.hosts[1-from].Do(t, func() (err error) {
		f.in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 1, byte(2-from), 0)})
		if err != nil {
			return err
		}
		raw, err := f.in.SyscallConn()
		if err != nil {
			return err
		}
		cerr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		})
		return errors.Join(cerr, err)
	})
	t.Cleanup(func() { _ = f.in.Close() })
	o.hosts[from].Do(t, func() error {
		for range flows {
			c, err := net.Dial("udp4", f.in.LocalAddr().String())
			if err != nil {
				return err
			}
			f.out = append(f.out, c)
		}
		return nil
	})
	t.Cleanup(func() {
		for _, c := range f.out {
			_ = c.Close()
		}
	})
	return f
}

// run sends rounds of bursts, and receives each round before the next.
func (f *flood) run() error {
	const rounds, burst = 20, 3
	next := make([]uint32, len(f.out))
	b := make([]byte, 2048)
	for round := range rounds {
		for k := range burst {
			for i, c := range f.out {
				m := make([]byte, 8+i%5*200) // of five sizes
				binary.BigEndian.PutUint32(m, uint32(i))
				binary.BigEndian.PutUint32(m[4:], uint32(round*burst+k))
				if _, err := c.Write(m); err != nil {
					return err
				}
			}
		}
		_ = f.in.SetReadDeadline(time.Now().Add(within))
		for got := range burst * len(f.out) {
			n, err := f.in.Read(b)
			if err != nil || n < 8 {
				return fmt.Errorf("round %d: %d datagrams of %d: %w", round, got, burst*len(f.out), err)
			}
			flow, number := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
			if number != next[flow] {
				return fmt.Errorf("flow %d: datagram %d comes where %d should", flow, number, next[flow])
			}
			next[flow]++
		}
	}
	return nil
}

// TestFlowComesBackToItsWorker has the acknowledgements of a TCP connection read by the worker that
// wrote its data.
func TestFlowComesBackToItsWorker(t *testing.T) {
	p := path{many: 4, raw: true}
	o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{p, p})
	data := make([]byte, 16<<20) // the first packets come before the kernel has learned the flow
	for range 2 {                // connections
		before := o.engines[1].Workers()
		if got := o.overTCP(t, "10.1.2.0", data); len(got) != len(data) {
			t.Fatalf("%d bytes arrived of %d", len(got), len(data))
		}
		var most, egress, back uint64
		for i, w := range o.engines[1].Workers() {
			in, out := w.Ingress-before[i].Ingress, w.Egress-before[i].Egress
			egress += out
			if in > most {
				most, back = in, out
			}
		}
		if back*10 < egress*9 {
			t.Errorf("of %d packets back %d are the worker's that wrote the data: %+v, before %+v", egress, back,
				o.engines[1].Workers(), before)
		}
	}
}

// flowTo is a UDP packet of a flow.
func flowTo(t *testing.T, dst string, flow, size int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, Flags: layers.IPv4DontFragment,
		SrcIP: net.IPv4(10, 1, 1, 5), DstIP: net.ParseIP(dst)}
	u := &layers.UDP{SrcPort: layers.UDPPort(1000 + flow), DstPort: 2000}
	_ = u.SetNetworkLayerForChecksum(ip)
	return encode(t, ip, u, gopacket.Payload(make([]byte, size)))
}

// spreadUnderlays are the two ports that have lanes.
func spreadUnderlays() map[string]func(port.UDPOptions) (port.Underlay, error) {
	return map[string]func(port.UDPOptions) (port.Underlay, error){
		"socket": func(o port.UDPOptions) (port.Underlay, error) { return port.ListenOffload(o) },
		"raw":    func(o port.UDPOptions) (port.Underlay, error) { return openRaw(o) },
	}
}

// aimAt tells a node on path raw the next hop on eth0 to an outer address.
func aimAt(t *testing.T, u port.Underlay, to netip.Addr, from *host, next *host, link string) {
	t.Helper()
	r, ok := u.(*port.Raw)
	if !ok {
		return
	}
	var hop port.NextHop
	for _, end := range []struct {
		h    *host
		link string
		mac  *encap.MAC
	}{{from, "eth0", &hop.Local}, {next, link, &hop.Remote}} {
		end.h.Do(t, func() error {
			l, err := netlink.LinkByName(end.link)
			if err == nil {
				*end.mac = encap.MAC(l.Attrs().HardwareAddr)
			}
			return err
		})
	}
	r.SetNextHops(map[netip.Addr]port.NextHop{to: hop})
}

// TestLanes looks at the source ports on the wire: one for each flow towards a node of our kind, the
// tunnel's own towards flannel.
func TestLanes(t *testing.T) {
	t.Parallel()
	for name, listen := range spreadUnderlays() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newHost(t), newHost(t)
			wire(t, a, b, "192.0.2.1/24", "192.0.2.2/24", 1500)
			var under port.Underlay
			n := senderOver(t, a, "192.0.2.1", 4, func(o port.UDPOptions) (_ port.Underlay, err error) {
				under, err = listen(o)
				return under, err
			}, tunnel.PeerSpec{Name: "weft", Addr: addr("192.0.2.2"), Weft: true, Subnets: prefixes("10.1.2.0/24")},
				tunnel.PeerSpec{Name: "flannel", Addr: addr("192.0.2.3"), Subnets: prefixes("10.1.3.0/24")})
			b.Do(t, func() error { return addAddr("eth0", "192.0.2.3/24") })
			for dst, outer := range map[string]string{"10.1.2.7": "192.0.2.2", "10.1.3.7": "192.0.2.3"} {
				var in *net.UDPConn
				b.Do(t, func() (err error) {
					in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(outer), Port: udpPort})
					return err
				})
				defer in.Close()
				aimAt(t, under, addr(outer), a, b, "eth0")
				ports := map[uint16]int{}
				of := map[int]uint16{}
				for round := range 2 {
					for flow := range 100 {
						got := sourcePort(t, n, in, flowTo(t, dst, flow, 100))
						if round > 0 && of[flow] != got {
							t.Errorf("flow %d to %s left from port %d, then from %d", flow, dst, of[flow], got)
						}
						of[flow] = got
						ports[got]++
					}
				}
				switch {
				case outer == "192.0.2.3" && (len(ports) != 1 || ports[udpPort] == 0):
					t.Errorf("towards flannel the source ports are %v", ports)
				case outer == "192.0.2.2" && (len(ports) != 4 || ports[udpPort] != 0):
					t.Errorf("towards weft the source ports are %v, want four others than %d", ports, udpPort)
				}
				places := map[uint16]bool{}
				for p := range ports {
					places[p%4] = true
				}
				if len(places) != len(ports) {
					t.Errorf("the source ports %v are not all different modulo 4", ports)
				}
			}
		})
	}
}

// sourcePort sends a packet until it arrives, since at first there is no neighbour, and returns the
// port that it came from.
func sourcePort(t *testing.T, n *node, in *net.UDPConn, packet []byte) uint16 {
	t.Helper()
	b := make([]byte, 2048)
	for end := time.Now().Add(within); time.Now().Before(end); {
		n.host.Inject(tunneltest.Datagram{Data: packet})
		for {
			_ = in.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			m, from, err := in.ReadFromUDPAddrPort(b)
			if err != nil {
				break
			}
			if string(b[:m]) == string(packet) {
				return from.Port()
			}
		}
	}
	t.Fatalf("nothing arrives: %+v", n.Stats())
	return 0
}
