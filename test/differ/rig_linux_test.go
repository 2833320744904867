package differ

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

const (
	vtepPort = 8472
	vni      = 77
	// queueLen is the length of the devices' queues, in packets: several batches.
	queueLen = 4096
)

// The Ethernet addresses: of the underlay's link, of the peer on it, and of both ends of the overlay.
const (
	linkMAC = "02:00:00:00:00:01"
	farMAC  = "02:00:00:00:00:02"
	ownVTEP = "0e:00:00:00:00:01"
	farVTEP = "0e:00:00:00:00:02"
)

// rig is a host in a namespace of its own with one end of a VXLAN network, the kernel's or weft's. Its
// underlay is a TAP and its pods are a TUN, so that what is written to one of them goes through all of the
// host in that call, and the order of packets stays.
type rig struct {
	name      string
	ns        *netns.Namespace
	wire, pod int // descriptors
	engine    *tunnel.Engine
	marks     uint64 // the last that was sent
	buf       [1 << 16]byte
}

// outers are the outer addresses of this node and of its peer.
func outers(six bool) (own, peer netip.Addr) {
	if six {
		return netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	return netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
}

// newRig makes a host whose underlay is of one family. path 0 is the kernel's vxlan.
func newRig(t *testing.T, six bool, path tunnel.Path) *rig {
	t.Helper()
	netns.TUN(t)
	r := &rig{name: "kernel"}
	if path != 0 {
		r.name = path.String()
	}
	r.ns = netns.New(t, "differ")
	if err := r.ns.Do(func() error { return r.setUp(t, six, path) }); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Close(r.wire), unix.Close(r.pod)) })
	return r
}

func (r *rig) setUp(t *testing.T, six bool, path tunnel.Path) error {
	for name, v := range map[string]string{
		"net/ipv6/conf/default/addr_gen_mode": "1", "net/ipv6/conf/default/accept_ra": "0",
		"net/ipv6/conf/default/accept_dad": "0",
		"net/ipv4/ip_forward":              "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv6/conf/default/forwarding": "1",
		"net/ipv4/conf/all/rp_filter":      "0", "net/ipv4/conf/default/rp_filter": "0",
		"net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
	} {
		if err := os.WriteFile("/proc/sys/"+name, []byte(v), 0o644); err != nil {
			return err
		}
	}
	var err error
	if r.wire, err = openDevice("eth0", unix.IFF_TAP); err != nil {
		return err
	}
	if r.pod, err = openDevice("pod0", unix.IFF_TUN); err != nil {
		return err
	}
	own, peer := outers(six)
	if err := ipBatch(`link set eth0 address ` + linkMAC + ` mtu 1500 txqueuelen ` + strconv.Itoa(queueLen) +
		` up
link set pod0 mtu 9000 txqueuelen ` + strconv.Itoa(queueLen) + ` up
addr add ` + own.String() + map[bool]string{false: "/24", true: "/64 nodad"}[six] + ` dev eth0
neigh add ` + peer.String() + ` lladdr ` + farMAC + ` nud permanent dev eth0
route add 10.1.1.0/24 dev pod0
route add fd00:1:1::/64 dev pod0
`); err != nil {
		return err
	}
	script := ""
	if path == 0 {
		script = fmt.Sprintf("link add flannel0 type vxlan id %d local %v dev eth0 dstport %d nolearning\n", vni,
			own, vtepPort) +
			"link set flannel0 address " + ownVTEP + "\nneigh add 10.1.2.0 lladdr " + farVTEP +
			" nud permanent dev flannel0\n"
	} else if err := r.weft(t, six, path); err != nil {
		return err
	}
	if err := ipBatch(script + `link set flannel0 mtu 1430 txqueuelen ` + strconv.Itoa(queueLen) + ` up
addr add 10.1.1.0/32 dev flannel0
addr add fd00:1:1::/128 dev flannel0
neigh add fd00:1:2:: lladdr ` + farVTEP + ` nud permanent dev flannel0
route add 10.1.2.0/24 via 10.1.2.0 dev flannel0 onlink
route add fd00:1:2::/64 via fd00:1:2:: dev flannel0 onlink
`); err != nil || path != 0 {
		return err
	}
	if out, err := exec.Command("bridge", "fdb", "append", farVTEP, "dev", "flannel0", "dst",
		peer.String()).CombinedOutput(); err != nil {
		return fmt.Errorf("bridge: %w: %s", err, out)
	}
	return nil
}

// ipBatch runs the lines as commands of ip, in this thread's namespace.
func ipBatch(lines string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}

// openDevice makes a TUN or TAP without any offload: it may be given superpackets, and gives none.
func openDevice(name string, kind uint16) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	req.SetUint16(kind | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return fd, nil
}

// weft opens the ports of a path and runs an engine over them, with one worker, so that packets keep their
// order.
func (r *rig) weft(t *testing.T, six bool, path tunnel.Path) error {
	own, peer := outers(six)
	uo := port.UDPOptions{Local: netip.AddrPortFrom(own, vtepPort), Format: encap.FormatVXLAN}
	var host, under port.Port
	var err error
	if path == tunnel.PathPortable {
		host, err = port.OpenTUN(port.TUNOptions{Name: "flannel0"})
	} else {
		host, err = port.OpenOffloadTUN(port.TUNOptions{Name: "flannel0"})
	}
	if err != nil {
		return err
	}
	switch path {
	case tunnel.PathPortable:
		under, err = port.ListenUDP(uo)
	case tunnel.PathSocket:
		under, err = port.ListenOffload(uo)
	default:
		under, err = openRaw(uo, peer)
	}
	if err != nil {
		return err
	}
	if r.engine, err = tunnel.New(tunnel.Config{Format: encap.FormatVXLAN, Port: vtepPort, Workers: 1}); err != nil {
		return err
	}
	table, err := tunnel.NewTable(encap.FormatVXLAN, tunnel.Spec{
		Local:    []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1:1::/64")},
		Address4: netip.MustParseAddr("10.1.1.0"), Address6: netip.MustParseAddr("fd00:1:1::"),
		Self: []netip.Addr{own}, UnderlayMTU: 1500, MTU: 1430, Check: tunnel.CheckStrict,
		VNI: vni, MAC4: parseMAC(ownVTEP), MAC6: parseMAC(ownVTEP),
		Peers: []tunnel.PeerSpec{{Name: "peer", Addr: peer, MAC: parseMAC(farVTEP),
			Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00:1:2::/64")}}},
	})
	if err != nil {
		return err
	}
	r.engine.Swap(table)
	_, err = r.engine.Attach(host, tunnel.RoleHost)
	_, err2 := r.engine.Attach(under, tunnel.RoleUnderlay)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	})
	return nil
}

// parseMAC reads an address without fmt, since it is asked for in each frame.
func parseMAC(s string) (m encap.MAC) {
	nibble := func(c byte) byte {
		if c >= 'a' {
			return c - 'a' + 10
		}
		return c - '0'
	}
	for i := range m {
		m[i] = nibble(s[3*i])<<4 | nibble(s[3*i+1])
	}
	return m
}

// openRaw opens path raw on eth0. What a filter at the link's ingress does on a real host one on the UDP
// socket does here: it leaves to the packet socket what that takes, which are datagrams without IP options
// and extension headers.
func openRaw(o port.UDPOptions, peer netip.Addr) (*port.Raw, error) {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return nil, err
	}
	r, err := port.OpenRaw(port.RawOptions{UDPOptions: o, Link: link.Attrs().Index})
	if err != nil {
		return nil, err
	}
	const network = 0xfff00000 // SKF_NET_OFF: from the IP header on
	at, plain := uint32(network), uint32(0x45)
	if peer.Is6() {
		at, plain = network+6, unix.IPPROTO_UDP
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: at},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: plain, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
	}
	err = unix.SetsockoptSockFprog(r.Queues()[1].PollFD(), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	r.SetNextHops(map[netip.Addr]port.NextHop{peer: {Local: parseMAC(linkMAC), Remote: parseMAC(farMAC)}})
	return r, errors.Join(err, r.Listen())
}

// write gives the host a packet, by one of its descriptors. One that the device itself refuses is given to
// nobody.
func (r *rig) write(fd int, h header, b []byte) { _, _ = unix.Writev(fd, [][]byte{h[:], b}) }

// give gives the host what weft gets of a load.
func (r *rig) give(fd int, l *load) { r.write(fd, l.header, l.data) }

// read appends to out what the host has sent by fd.
func (r *rig) read(fd int, out *packets, keep func([]byte) bool) {
	for {
		n, err := unix.Read(fd, r.buf[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case keep(r.buf[len(header{}):n]):
			out.add(r.buf[len(header{}):n])
		}
	}
}

// packets are many in one piece of memory.
type packets struct {
	data []byte
	ends []int
}

func (p *packets) reset()   { p.data, p.ends = p.data[:0], p.ends[:0] }
func (p *packets) len() int { return len(p.ends) }

func (p *packets) add(b []byte) {
	p.data = append(p.data, b...)
	p.ends = append(p.ends, len(p.data))
}

func (p *packets) at(i int) []byte {
	from := 0
	if i > 0 {
		from = p.ends[i-1]
	}
	return p.data[from:p.ends[i]]
}
