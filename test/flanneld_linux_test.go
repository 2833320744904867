package test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// flanneld is what a flannel node with the udp backend does with packets: a TUN of its own that
// ends with it, one socket, one datagram for one packet, TTL less one in either direction, no checks.
// It notes what a real one could not digest.
type flanneld struct {
	host *lab.Host
	pod  netip.Addr // its pod, an address of the host itself

	sock  *net.UDPConn
	tun   *os.File
	peers func(netip.Addr) (netip.AddrPort, bool)

	mu       sync.Mutex
	faults   []error
	received int
	longest  int // bytes of the longest inner packet that came in
}

// flannelMTU is what flannel gives its TUN on an underlay of 1,500 bytes.
const flannelMTU = 1472

// startFlanneld puts a flannel node on the wire as 198.18.0.77 with the subnet 10.42.207.0/24, and
// its record into the store as flannel writes it.
func startFlanneld(t *testing.T, l *lab.Lab) *flanneld {
	t.Helper()
	f := &flanneld{host: newcomer(t, l, 77), pod: netip.MustParseAddr("10.42.207.2"), peers: nodesBySubnet(l)}
	if err := f.host.Do(f.open); err != nil {
		t.Fatal(err)
	}
	sh(t, f.host, fmt.Sprintf(`ip addr add 10.42.207.0/32 dev flannel0; ip link set flannel0 mtu %d txqueuelen 10000 up
		ip route add 10.42.0.0/16 dev flannel0; ip addr add %s/32 dev lo`, flannelMTU, f.pod))
	var wg sync.WaitGroup
	wg.Go(f.egress)
	wg.Go(f.ingress)
	t.Cleanup(func() {
		_ = f.sock.Close()
		_ = f.tun.Close()
		wg.Wait()
	})
	put(t, l.Store, prefix+"/subnets/10.42.207.0-24", `{"PublicIP":"198.18.0.77","PublicIPv6":null}`, 24*time.Hour)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "10.42.207.0/24", true)
	}
	return f
}

// endpoint is the flannel node's pod.
func (f *flanneld) endpoint() probe.Endpoint {
	return probe.Endpoint{Name: "flannel's pod", NS: f.host.NS, Addr: f.pod}
}

func (f *flanneld) open() (err error) {
	if f.sock, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(198, 18, 0, 77), Port: 8285}); err != nil {
		return err
	}
	raw, err := f.sock.SyscallConn()
	if err != nil {
		return err
	}
	// The buffer has room for what arrives while this process has no processor, since the test is about packets that
	// our node loses.
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) }); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq("flannel0")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	f.tun = os.NewFile(uintptr(fd), "flannel0")
	return nil
}

// nodesBySubnet is flannel's route table, from the lab's nodes.
func nodesBySubnet(l *lab.Lab) func(netip.Addr) (netip.AddrPort, bool) {
	nodes := l.Nodes()
	return func(dst netip.Addr) (netip.AddrPort, bool) {
		for _, n := range nodes {
			if n.Net.V4.Masked().Contains(dst) {
				return netip.AddrPortFrom(n.Underlay4, 8285), true
			}
		}
		return netip.AddrPort{}, false
	}
}

func (f *flanneld) egress() {
	for b := make([]byte, flannelMTU); ; {
		n, err := f.tun.Read(b)
		if err != nil {
			return // closed
		}
		if n < 20 || b[0]>>4 != 4 {
			continue // the kernel's own IPv6 chatter
		}
		if to, ok := f.peers(netip.AddrFrom4([4]byte(b[16:20]))); ok && hop(b[:n]) {
			_, _ = f.sock.WriteToUDPAddrPort(b[:n], to) // as flannel: at most logged
		}
	}
}

func (f *flanneld) ingress() {
	for b := make([]byte, 64<<10); ; {
		n, from, err := f.sock.ReadFromUDPAddrPort(b)
		if err != nil {
			return // closed
		}
		f.inspect(b[:n], from)
		if n >= 20 && b[0]>>4 == 4 && hop(b[:n]) {
			_, _ = f.tun.Write(b[:n])
		}
	}
}

// inspect notes packets that flannel would refuse or deliver broken.
func (f *flanneld) inspect(b []byte, from netip.AddrPort) {
	p := gopacket.NewPacket(append([]byte{}, b...), proto.LayerTypeIPv4, gopacket.Default)
	err := checksums(p)
	switch {
	case err != nil:
	case len(b) > flannelMTU:
		err = fmt.Errorf("%d bytes, more than its MTU", len(b))
	case from.Port() != 8285:
		err = fmt.Errorf("from port %d", from.Port())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received++
	f.longest = max(f.longest, len(b))
	if err != nil {
		f.faults = append(f.faults, fmt.Errorf("%w: % x", err, b[:min(len(b), 60)]))
	}
}

// hop decrements the TTL and mends the header's checksum (RFC 1624, equation 3, whose term for a
// byte in the high half of its word is 0x100). It reports false for a packet that ends here.
func hop(b []byte) bool {
	if b[8] <= 1 {
		return false
	}
	b[8]--
	sum := uint32(b[10])<<8 + uint32(b[11]) + 0x100
	sum += sum >> 16
	b[10], b[11] = byte(sum>>8), byte(sum)
	return true
}

// verdict is what was noted since the start.
func (f *flanneld) verdict() (received, longest int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received, f.longest, errors.Join(f.faults...)
}
