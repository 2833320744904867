package tunnel_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
)

// overlay is two hosts over a wire, each with an engine between its TUN and a UDP socket.
type overlay struct {
	hosts   [2]*host
	engines [2]*tunnel.Engine
	raws    [2]*port.Raw // of those whose path is raw
	paths   [2]path
}

// path is how an end of an overlay moves packets.
type path struct {
	portable bool
	raw      bool // frames, and what the peer may be sent besides
	ipip     bool // format ipip, which has one underlay port
	off      port.OffloadSet
	many     int  // workers, and queues and lanes; 0 is what this machine has
	spoilt   bool // the kernel will refuse UDP_SEGMENT, but only when it is used
	probed   bool // the other end is known to answer probes
	log      *slog.Logger
	recv     port.Recv    // what the other end is known to take besides
	clock    func() int64 // nil is the machine's
}

// open opens the two ports of the path in the current namespace.
func (p path) open(local string) (tun, sock port.Port, err error) {
	to := port.TUNOptions{Name: "flannel0", Off: p.off, Queues: p.many}
	uo := port.UDPOptions{Local: outer(local), Off: p.off, Queues: p.many, Lanes: p.many}
	if p.portable {
		if tun, err = port.OpenTUN(to); err == nil {
			sock, err = port.ListenUDP(uo)
		}
		return tun, sock, err
	}
	if tun, err = port.OpenOffloadTUN(to); err != nil {
		return tun, sock, err
	}
	if p.raw {
		sock, err = openRaw(uo)
		return tun, sock, err
	}
	if p.ipip {
		sock, err = port.ListenIPIP(uo)
		return tun, sock, err
	}
	sock, err = port.ListenOffload(uo)
	if err == nil && p.spoilt { // the one way to make a present kernel refuse
		err = unix.SetsockoptInt(sock.Queues()[0].PollFD(), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}
	return tun, sock, err
}

// format is the one of what the path sends.
func (p path) format() encap.Format {
	if p.ipip {
		return encap.FormatIPIP
	}
	return encap.FormatIP
}

// newOverlay joins 10.1.1.0/24 and 10.1.2.0/24 (and fd00:1:1::/64, fd00:1:2::/64)
// over the outer addresses.
func newOverlay(t testing.TB, outerA, outerB string, mtu int, paths [2]path) *overlay {
	t.Helper()
	o := &overlay{hosts: [2]*host{newHost(t), newHost(t)}, paths: paths}
	bits := "/24"
	if strings.Contains(outerA, ":") {
		bits = "/64"
	}
	wire(t, o.hosts[0], o.hosts[1], outerA+bits, outerB+bits, mtu)
	for i, h := range o.hosts {
		outers := []string{outerA, outerB}
		me, peer := i+1, 2-i
		s := tunnel.Spec{
			Local:    prefixes(fmt.Sprintf("10.1.%d.0/24", me), fmt.Sprintf("fd00:1:%d::/64", me)),
			Address4: addr(fmt.Sprintf("10.1.%d.0", me)), Address6: addr(fmt.Sprintf("fd00:1:%d::", me)),
			Self: []netip.Addr{addr(outers[i])}, UnderlayMTU: mtu, Check: tunnel.CheckStrict,
			Peers: []tunnel.PeerSpec{{Name: "peer", Addr: addr(outers[1-i]), Weft: true,
				Subnets: prefixes(fmt.Sprintf("10.1.%d.0/24", peer), fmt.Sprintf("fd00:1:%d::/64", peer))}},
		}
		if paths[i].raw {
			s.Peers[0].Recv = port.Supported
		}
		if paths[i].probed {
			s.Peers[0].Recv |= port.RecvProbe
		}
		s.Peers[0].Recv |= paths[i].recv
		h.Do(t, func() error { return o.attach(i, s, outers[i], mtu) })
		running(t, o.engines[i])
	}
	o.aim(t, outerA, outerB)
	return o
}

func (o *overlay) attach(i int, s tunnel.Spec, local string, mtu int) error {
	tun, sock, err := o.paths[i].open(local)
	if err != nil {
		return err
	}
	format := o.paths[i].format()
	s.MTU = mtu - format.Overhead(addr(local).Is6())
	if err := configureTUN(s, s.MTU); err != nil {
		return err
	}
	if o.engines[i], err = tunnel.New(tunnel.Config{Format: format, Port: udpPort, Workers: o.paths[i].many,
		Logger: o.paths[i].log, Clock: o.paths[i].clock}); err != nil {
		return err
	}
	table, err := tunnel.NewTable(format, s)
	if err != nil {
		return err
	}
	o.engines[i].Swap(table)
	o.raws[i], _ = sock.(*port.Raw)
	_, err = o.engines[i].Attach(tun, tunnel.RoleHost)
	_, err2 := o.engines[i].Attach(sock, tunnel.RoleUnderlay)
	return errors.Join(err, err2)
}

// configureTUN gives flannel0 its addresses, MTU and routes, as weftd does: IPv6 by a gateway that is nobody,
// since without one each destination takes a place in the kernel's table of neighbours, which all namespaces
// share.
func configureTUN(s tunnel.Spec, mtu int) error {
	link, err := netlink.LinkByName("flannel0")
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetMTU(link, mtu), addAddr("flannel0", s.Address4.String()+"/32"),
		addAddr("flannel0", s.Address6.String()+"/128")}
	index, gateway := link.Attrs().Index, net.ParseIP("fe80::1")
	errs = append(errs, netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT,
		IP: gateway}))
	for n, gw := range map[string]net.IP{"10.1.0.0/16": nil, "fd00:1::/32": gateway} {
		_, dst, err := net.ParseCIDR(n)
		errs = append(errs, err, netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: dst, Gw: gw}))
	}
	return errors.Join(errs...)
}

// without is path socket less some offloads.
func without(l ...port.Offload) path {
	var p path
	for _, o := range l {
		p.off = p.off.With(o)
	}
	return p
}

// TestTCPAndUDPOverTUN carries real traffic of both families over every path, over an IPv4 and an IPv6
// underlay, and over every path with each offload less, and compares what arrived.
func TestTCPAndUDPOverTUN(t *testing.T) {
	t.Parallel()
	portable := path{portable: true}
	paths := map[string][2]path{
		"portable":            {portable, portable},
		"socket":              {},
		"socket to portable":  {{}, portable},
		"portable to socket":  {portable, {}},
		"no offload at all":   {{off: ^port.OffloadSet(0)}, {off: ^port.OffloadSet(0)}},
		"none towards socket": {{off: ^port.OffloadSet(0)}, {}},
		"raw":                 {{raw: true}, {raw: true}},
		"raw to socket":       {{raw: true}, {}},
		"raw to portable":     {{raw: true}, portable},
		"socket to raw":       {{}, {raw: true}},
		"raw, no offload":     {{raw: true, off: ^port.OffloadSet(0)}, {raw: true, off: ^port.OffloadSet(0)}},
	}
	for o := range port.NumOffloads {
		p := without(o)
		paths["socket without "+o.String()] = [2]path{p, p}
		p.raw = true
		paths["raw without "+o.String()] = [2]path{p, p}
	}
	for _, p := range []path{{many: 4}, {many: 4, raw: true}} {
		name := map[bool]string{false: "socket", true: "raw"}[p.raw]
		paths[name+" with four workers"] = [2]path{p, p}
		paths[name+" with four workers to one without"] = [2]path{p, {raw: p.raw}}
	}
	paths["four workers to portable"] = [2]path{{many: 4}, portable}
	paths["ipip"] = [2]path{{ipip: true}, {ipip: true}}
	paths["ipip with four workers"] = [2]path{{ipip: true, many: 4}, {ipip: true}}
	for name, p := range paths {
		for _, outers := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8::2"}} {
			if six := strings.Contains(outers[0], ":"); six && (p[0].ipip || strings.Contains(name, "without ")) {
				continue // ipip has none, and which offload lacks has nothing to do with the outer header
			}
			t.Run(fmt.Sprintf("path=%s/outer=%s", name, outers[0]), func(t *testing.T) {
				t.Parallel()
				o := newOverlay(t, outers[0], outers[1], 1500, p)
				for _, to := range []string{"10.1.2.0", "fd00:1:2::"} {
					if p[0].ipip && strings.Contains(to, ":") {
						continue
					}
					t.Run("inner="+to, func(t *testing.T) { o.carries(t, to) })
				}
				for i, e := range o.engines {
					s := accounted(t, e)
					if s.Egress.Delivered == 0 || s.Ingress.Delivered == 0 {
						t.Errorf("engine %d carried nothing: %+v", i, s)
					}
					checkOffloads(t, name, o.paths[i], s.Offloads)
				}
			})
		}
	}
}

// TestOffloadLost loses UDP_SEGMENT in the middle of traffic: what was being sent
// goes out without it, and nothing is missing.
func TestOffloadLost(t *testing.T) {
	t.Parallel()
	o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{{spoilt: true}, {}})
	o.carries(t, "10.1.2.0")
	for _, l := range o.engines[0].Stats().Offloads {
		if want := l.Offload == port.OffloadGSO; (l.State == port.OffloadLost) != want {
			t.Errorf("%v is %v", l.Offload, l.State)
		}
	}
	if s := o.engines[0].Stats(); s.Egress.Received != s.Egress.Delivered+s.Egress.Drops[port.DropMulticast] {
		t.Errorf("packets were lost with the offload: %+v", s.Egress)
	}
}

func (o *overlay) carries(t *testing.T, to string) {
	sent := bytes.Repeat([]byte("weft carries this. "), 100_000)
	if got := o.overTCP(t, to, sent); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrived, other than the %d sent", len(got), len(sent))
	}
	for _, size := range []int{0, 1, 1000, 1400} {
		want := sent[:size]
		if got := o.overUDP(t, to, want, 0); !bytes.Equal(got, want) {
			t.Errorf("datagram of %d bytes arrived as %d", size, len(got))
		}
	}
	if want := sent[:50*1000+7]; !bytes.Equal(o.overUDP(t, to, want, 1000), want) {
		t.Error("a batch of 51 datagrams did not arrive whole and in order")
	}
}

// checkOffloads sees that what is switched off is not used, and that nothing was lost.
func checkOffloads(t *testing.T, name string, p path, l []port.OffloadStats) {
	t.Helper()
	if p.portable {
		if len(l) != 0 {
			t.Errorf("%s: path portable has offloads: %v", name, l)
		}
		return
	}
	for _, o := range l {
		want := port.OffloadOn
		if p.off.Has(o.Offload) {
			want = port.OffloadSwitchedOff
		}
		if o.State != want || want == port.OffloadSwitchedOff && o.Calls > 0 {
			t.Errorf("%s: %v is %v after %d calls, want it %v", name, o.Offload, o.State, o.Calls, want)
		}
	}
}

// overTCP sends data from host 0 to an address of host 1 and returns what arrived.
func (o *overlay) overTCP(t *testing.T, to string, data []byte) []byte {
	t.Helper()
	var l net.Listener
	o.hosts[1].Do(t, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(to, "0"))
		return err
	})
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- nil
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		var b bytes.Buffer
		_, _ = b.ReadFrom(c)
		got <- b.Bytes()
	}()
	o.hosts[0].Do(t, func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), within)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(data)
		return err
	})
	return <-got
}

// overUDP sends data as a datagram, or as datagrams of size bytes, in one call and returns what arrived, in
// order.
func (o *overlay) overUDP(t *testing.T, to string, data []byte, size int) (got []byte) {
	t.Helper()
	var l net.PacketConn
	o.hosts[1].Do(t, func() (err error) {
		l, err = net.ListenPacket("udp", net.JoinHostPort(to, "0"))
		return err
	})
	defer l.Close()
	o.hosts[0].Do(t, func() error {
		c, err := net.Dial("udp", l.LocalAddr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		if size == 0 {
			_, err = c.Write(data)
			return err
		}
		if cerr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
		}); cerr != nil || err != nil {
			return errors.Join(cerr, err)
		}
		_, err = c.Write(data)
		return err
	})
	b := make([]byte, 65536)
	_ = l.SetReadDeadline(time.Now().Add(within))
	for once := true; once || len(got) < len(data); once = false {
		n, _, err := l.ReadFrom(b)
		if err != nil {
			t.Errorf("%d of %d bytes: %v", len(got), len(data), err)
			break
		}
		got = append(got, b[:n]...)
	}
	return got
}

func TestOpenTUNErrors(t *testing.T) { // alone: it names a descriptor by its number
	h := newHost(t)
	h.Do(t, func() error {
		if _, err := port.OpenTUN(port.TUNOptions{Name: "lo"}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("lo: %v, want EINVAL", err)
		}
		if _, err := port.OpenTUN(port.TUNOptions{Name: "a-name-that-is-too-long"}); err == nil {
			t.Error("a name too long is taken")
		}
		if _, err := port.ListenUDP(port.UDPOptions{Local: outer("192.0.2.77")}); !errors.Is(err,
			unix.EADDRNOTAVAIL) {
			t.Errorf("an address that is not ours: %v, want EADDRNOTAVAIL", err)
		}
		s, err := port.ListenUDP(port.UDPOptions{Local: outer("127.0.0.1")})
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := port.ListenUDP(port.UDPOptions{Local: outer("127.0.0.1")}); !errors.Is(err,
			unix.EADDRINUSE) {
			t.Errorf("a port in use: %v, want EADDRINUSE", err)
		}
		return nil
	})
	if _, err := port.TUNFromFD(int(os.NewFile(0, "").Fd()) + 1000); err == nil {
		t.Error("a descriptor that is none is wrapped")
	}
}

// TestPortLost deletes the TUN under a running engine.
func TestPortLost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	lost := make(chan tunnel.PortID, 8)
	e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort,
		PortLost: func(id tunnel.PortID, _ error) { lost <- id }})
	if err != nil {
		t.Fatal(err)
	}
	running(t, e)
	h.Do(t, func() error {
		for range 2 { // and again with a new one
			tun, err := port.OpenTUN(port.TUNOptions{Name: "flannel0"})
			if err != nil {
				return err
			}
			id, err := e.Attach(tun, tunnel.RoleHost)
			if err != nil {
				return err
			}
			link, err := netlink.LinkByName("flannel0")
			if err != nil {
				return err
			}
			if err := netlink.LinkDel(link); err != nil {
				return err
			}
			select {
			case got := <-lost:
				if got != id {
					t.Errorf("lost port %d, want %d", got, id)
				}
			case <-time.After(within):
				return errors.New("the loss of the device is not noticed")
			}
			if err := e.Detach(id); err != nil {
				return err
			}
		}
		return nil
	})
	if len(lost) != 0 {
		t.Errorf("the loss was reported %d times too often", len(lost))
	}
}
