package encap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	testns "weft/test/netns"
)

// router is a namespace that forwards from one TUN to another. What is written to
// in leaves the kernel at out, cut to the segments that the superpacket said.
type router struct{ in, out int }

// These are the networks to which the router forwards, and those from which it accepts packets.
const (
	routed4, routed6 = "10.9.0.0/16", "fd09::/64"
	from4, from6     = "10.8.0.0/16", "fd08::/64"
)

// newRouter makes a router. With partial, out takes packets with unfinished checksums,
// so that the kernel cuts, and does not sum. It needs root, and says so.
func newRouter(t testing.TB, partial bool) *router {
	t.Helper()
	testns.Need(t)
	r, done := &router{}, make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread, and with it the namespace
		done <- r.setUp(partial)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(r.in), unix.Close(r.out) })
	return r
}

func (r *router) setUp(partial bool) (err error) {
	ns, err := netns.New() // and enters it; the descriptors of the TUNs keep it
	if err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	defer ns.Close()
	for name, v := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv6/conf/default/addr_gen_mode": "1",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(v), 0); err != nil {
			return err
		}
	}
	if r.in, err = openTUN("in", true, true); err != nil {
		return err
	}
	if r.out, err = openTUN("out", partial, partial); err != nil {
		return err
	}
	return errors.Join(linkUp("in", from4, from6), linkUp("out", routed4, routed6))
}

// openTUN opens a TUN with or without virtio-net header, and with no offload but,
// if asked for, that of checksums.
func openTUN(name string, vnet, csum bool) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	flags, offload := uint16(unix.IFF_TUN|unix.IFF_NO_PI), 0
	if vnet {
		flags |= unix.IFF_VNET_HDR
	}
	if csum {
		offload = unix.TUN_F_CSUM
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, fmt.Errorf("TUNSETIFF %s: %w", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload); err != nil {
		return -1, fmt.Errorf("TUNSETOFFLOAD %s %d: %w", name, offload, err)
	}
	return fd, nil
}

// linkUp sets a link up, with the largest MTU, a queue for a thousand segments,
// and these routes to it.
func linkUp(name string, routes ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetMTU(link, 65535), netlink.LinkSetTxQLen(link, 2000),
		netlink.LinkSetUp(link)); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	for _, r := range routes {
		_, dst, err := net.ParseCIDR(r)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst}); err != nil {
			return fmt.Errorf("route %s to %s: %w", r, name, err)
		}
	}
	return nil
}

// address makes pkt one that the router forwards.
func address(pkt []byte) []byte {
	if pkt[0]>>4 == 4 {
		copy(pkt[12:], []byte{10, 8, 1, 1, 10, 9, 1, 1})
		pkt[8] = 64
	} else {
		src, dst := ip("fd08::1:2").As16(), ip("fd09::3:4").As16()
		copy(pkt[8:], src[:])
		copy(pkt[24:], dst[:])
		pkt[7] = 64
	}
	return slowFix(pkt, true)
}

// forward sends pkt through the router and returns the n packets that come out, with
// the headers that out puts before them, if any.
func (r *router) forward(t testing.TB, pkt []byte, h VNetHdr, n, hdrLen int) (segs [][]byte) {
	t.Helper()
	buf := make([]byte, VNetHdrLen, VNetHdrLen+len(pkt))
	h.Put(buf)
	if _, err := unix.Write(r.in, append(buf, pkt...)); err != nil {
		t.Fatalf("write %+v %.60x: %v", h, pkt, err)
	}
	read := make([]byte, 1<<17)
	for deadline := time.Now().Add(5 * time.Second); len(segs) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d packets came out of %d: %+v %.60x", len(segs), n, h, pkt)
		}
		m, err := unix.Read(r.out, read)
		if errors.Is(err, unix.EAGAIN) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(r.out), Events: unix.POLLIN}}, 100)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p := read[:m]
		if bytes.Equal(slowAddrs(p[hdrLen:]), slowAddrs(pkt)) { // and not the router's own chatter
			segs = append(segs, slices.Clone(p))
		}
	}
	return segs
}

// vnetHdr describes a superpacket to the kernel.
func vnetHdr(t testing.TB, pkt []byte, size int) VNetHdr {
	t.Helper()
	in, err := ParseInner(pkt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSuper(pkt, in, size)
	if err != nil {
		t.Fatal(err)
	}
	h := VNetHdr{Flags: VNetNeedsCsum, HdrLen: uint16(s.HeaderLen), CsumStart: uint16(s.L4),
		CsumOffset: ChecksumOffsetTCP}
	if in.Proto == ProtoUDP {
		h.CsumOffset = ChecksumOffsetUDP
	}
	if s.Segments > 1 {
		h.GSOType, h.GSOSize = GSOType(in.Version, in.Proto), uint16(size)
	}
	if in.Proto == ProtoTCP && pkt[in.L4+13]&tcpCWR != 0 && s.Segments > 1 {
		h.GSOType |= VNetGSOECN
	}
	return h
}

// kernelSuper makes superpackets of the kinds that a sender could make, options,
// odd sizes, ECE and CWR, with DF and without. IPv4 options are those that a router
// leaves alone.
func kernelSuper(r *rand.Rand) (pkt []byte, size int) {
	size = 1 + r.IntN(1500)
	pkt = randomSuper(r, min(1+r.IntN(100*size), 65535-MaxSegmentHeader))
	l4, proto := slowL4(pkt)
	if pkt[0]>>4 == 4 && l4 > 20 {
		for i := 20; i < l4; i++ {
			pkt[i] = 1 // no operation
		}
	}
	if proto == ProtoTCP {
		pkt[l4+13] = tcpACK | pkt[l4+13]&(tcpPSH|tcpFIN|tcpECE|tcpCWR)
		for i := l4 + 20; i < slowHeaderLen(pkt); i++ {
			pkt[i] = uint8(r.Uint32())
		}
	}
	return address(pkt), size
}

// Segments are those of the kernel's own software, byte for byte.
func TestSegmentIsKernels(t *testing.T) {
	for _, partial := range []bool{false, true} {
		t.Run(fmt.Sprintf("partial=%t", partial), func(t *testing.T) {
			r, rt, hdrLen := testRand(t), newRouter(t, partial), 0
			if partial {
				hdrLen = VNetHdrLen
			}
			count := map[string]int{}
			for range 400 {
				pkt, size := kernelSuper(r)
				aged := slices.Clone(pkt)
				if !DecrementTTL(aged) {
					t.Fatal("ttl")
				}
				l4, proto := slowL4(pkt)
				cwr := proto == ProtoTCP && pkt[l4+13]&tcpCWR != 0
				count[fmt.Sprintf("v%d proto %d cwr %t", pkt[0]>>4, proto, cwr)]++
				want := segments(t, aged, size, partial)
				if len(want) == 1 && !partial {
					finishLikeHelp(want[0])
				}
				got := rt.forward(t, pkt, vnetHdr(t, pkt, size), len(want), hdrLen)
				for i := range got {
					if partial {
						checkOutHdr(t, got[i], l4)
					}
					got[i] = got[i][hdrLen:]
				}
				samePackets(t, got, want)
			}
			t.Log(count)
		})
	}
}

// finishLikeHelp makes a complete TCP checksum of 0 into 0xffff: an ordinary packet
// is finished by skb_checksum_help.
func finishLikeHelp(pkt []byte) {
	if l4, proto := slowL4(pkt); proto == ProtoTCP && binary.BigEndian.Uint16(pkt[l4+16:]) == 0 {
		binary.BigEndian.PutUint16(pkt[l4+16:], 0xffff)
	}
}

// checkOutHdr checks what the kernel says of a segment that it left partial.
func checkOutHdr(t testing.TB, seg []byte, l4 int) {
	t.Helper()
	h, err := ParseVNetHdr(seg)
	if err != nil || h.Flags != VNetNeedsCsum || h.GSOType != VNetGSONone || int(h.CsumStart) != l4 {
		t.Fatalf("segment comes with %+v, %v", h, err)
	}
}

// Where a checksum comes to 0, the kernel writes it as we do.
func TestChecksumZeroIsKernels(t *testing.T) {
	rt := newRouter(t, false)
	for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
		pkt := transport(false, proto, 300, false)
		if proto == ProtoTCP {
			pkt[20+13] = tcpACK
		}
		address(pkt)
		sumZero(t, pkt)
		aged := slices.Clone(pkt)
		DecrementTTL(aged)
		want := segments(t, aged, 100, false)
		samePackets(t, rt.forward(t, pkt, vnetHdr(t, pkt, 100), 3, 0), want)
	}
}

// The kernel takes the superpackets that a Run makes, and cuts them into the packets again.
func TestCoalescedIsTakenByKernel(t *testing.T) {
	r, rt := testRand(t), newRouter(t, false)
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			for range 30 {
				size := 1 + r.IntN(1448)
				n := min(2+r.IntN(126), 65000/size)
				super := transport(six, proto, size*n-r.IntN(size), false)
				if l4, _ := slowL4(super); proto == ProtoTCP {
					super[l4+13] = tcpACK | uint8(r.Uint32())&(tcpPSH|tcpECE)
				}
				pkts := slowSegment(address(super), size, false)
				got, hdrs := runCoalesce(new(Run), arrivals(pkts, r.IntN(2) == 0))
				if len(got) != 1 {
					t.Fatalf("%d packets of %d merge into %d", n, size, len(got))
				}
				for _, p := range pkts {
					DecrementTTL(p)
				}
				samePackets(t, rt.forward(t, got[0].pkt, hdrs[0], len(pkts), 0), pkts)
			}
		}
	}
}
