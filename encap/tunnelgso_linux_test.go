package encap

import (
	"bytes"
	"errors"
	"fmt"
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

// Offloads of a TAP (linux/if_tun.h): all, with tunnel GSO and its outer checksum.
const allOffloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN |
	unix.TUN_F_USO4 | unix.TUN_F_USO6 | 0x80 | 0x100

// wire is a namespace in which a bridge joins the TAPs in and out: what is written to
// in leaves at out, whole if out takes that, else cut and summed by the kernel.
type wire struct{ in, out int }

// newWire makes one. offload is what out takes. It needs root, and Linux 6.17.
func newWire(t testing.TB, offload int) *wire {
	t.Helper()
	testns.Need(t)
	w, done := &wire{-1, -1}, make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as in newRouter
		done <- w.setUp(offload)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(w.in), unix.Close(w.out) })
	return w
}

func (w *wire) setUp(offload int) error {
	ns, err := netns.New()
	if err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	defer ns.Close()
	for _, conf := range []string{"all", "default"} { // the wire is to be silent
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+conf+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
	}
	if w.in, err = openTAP("in", allOffloads); err != nil {
		return err
	}
	if w.out, err = openTAP("out", offload); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	for _, name := range []string{"in", "out"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("%s into the bridge: %w", name, err)
		}
		if err := errors.Join(netlink.LinkSetTxQLen(link, 2000), netlink.LinkSetUp(link)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return netlink.LinkSetUp(bridge)
}

// openTAP opens a TAP with the virtio-net header of tunnel GSO.
func openTAP(name string, offload int) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, fmt.Errorf("TUNSETIFF %s: %w", name, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, VNetTunnelHdrLen); err != nil {
		return -1, fmt.Errorf("TUNSETVNETHDRSZ %s: %w", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload); err != nil {
		return -1, fmt.Errorf("TUNSETOFFLOAD %s %#x, which needs Linux 6.17: %w", name, offload, err)
	}
	return fd, nil
}

// send writes frame with its header, and returns what comes out, n frames with the
// header before each.
func (w *wire) send(t testing.TB, hdr, frame []byte, n int) (out [][]byte) {
	t.Helper()
	if _, err := unix.Write(w.in, append(slices.Clone(hdr), frame...)); err != nil {
		t.Fatalf("write %x %.90x: %v", hdr, frame, err)
	}
	read := make([]byte, 1<<17)
	for deadline := time.Now().Add(5 * time.Second); len(out) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d frames came out of %d: %x %.90x", len(out), n, hdr, frame)
		}
		m, err := unix.Read(w.out, read)
		if errors.Is(err, unix.EAGAIN) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(w.out), Events: unix.POLLIN}}, 100)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(read[VNetTunnelHdrLen:m], frame[:EthernetLen]) { // and not the bridge's own
			out = append(out, slices.Clone(read[:m]))
		}
	}
	return out
}

// tunnelFrame dresses inner, which is to be cut to segments of size, for tunnel GSO.
func tunnelFrame(t testing.TB, six bool, inner []byte, size int, csum bool) (hdr, frame []byte) {
	t.Helper()
	tm, _, _ := template(t, six)
	h := vnetHdr(t, inner, size)
	h.HdrLen += uint16(tm.Len())
	h.CsumStart += uint16(tm.Len())
	h.GSOType |= VNetGSOTunnel4
	if six {
		h.GSOType ^= VNetGSOTunnel4 ^ VNetGSOTunnel6
	}
	if csum {
		h.Flags |= VNetTunnelCsum
	}
	hdr, frame = make([]byte, VNetTunnelHdrLen), make([]byte, tm.Len())
	h.PutTunnel(hdr, tm.Len()-UDPLen, tm.Len())
	tm.Put(frame, len(inner), ECT0, 100, csum)
	return hdr, append(frame, inner...)
}

// bigInner makes superpackets of 60 KB that a router could have.
func bigInner(six bool, proto uint8) []byte {
	pkt := transport(six, proto, 60000, false)
	if proto == ProtoTCP {
		l4, _ := slowL4(pkt)
		pkt[l4+13] = tcpACK | tcpPSH
	}
	return pkt
}

// eachTunnel calls f for the combinations of outer checksum that PutTunnel calls
// right, with TCP and UDP of both families.
func eachTunnel(t *testing.T, f func(t *testing.T, six, csum bool, inner []byte)) {
	for _, c := range []struct{ six, csum bool }{{false, false}, {false, true}, {true, true}} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			for _, inner6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("outer=%s/csum=%t/inner=%s/proto=%d", family(c.six), c.csum, family(inner6), proto),
					func(t *testing.T) {
						f(t, c.six, c.csum, bigInner(inner6, proto))
					})
			}
		}
	}
}

// A device that can do tunnel GSO gets what was written, header and all.
func TestTunnelGSOWhole(t *testing.T) {
	w := newWire(t, allOffloads)
	eachTunnel(t, func(t *testing.T, six, csum bool, inner []byte) {
		hdr, frame := tunnelFrame(t, six, inner, 1300, csum)
		got := w.send(t, hdr, frame, 1)[0]
		if !bytes.Equal(got[VNetTunnelHdrLen:], frame) {
			t.Errorf("frame of %d bytes, want %d:\n got %.120x\nwant %.120x", len(got)-VNetTunnelHdrLen, len(frame),
				got[VNetTunnelHdrLen:], frame)
		}
		clear(got[2:4]) // the length of the headers is a hint
		clear(hdr[2:4])
		if !bytes.Equal(got[:VNetTunnelHdrLen], hdr) {
			t.Errorf("header\n got %x\nwant %x", got[:VNetTunnelHdrLen], hdr)
		}
		f, err := ParseFrame(got[VNetTunnelHdrLen:])
		if err != nil || !bytes.Equal(got[VNetTunnelHdrLen:][f.From:f.To], inner) || f.Checksum != csum {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// For a device that cannot, the kernel cuts: the frames are those that we would make
// of the inner segments, one by one. If the device fills in checksums, those of the
// inner packets are partial, and the outer ones right as soon as they are filled in.
func TestTunnelGSOIsCut(t *testing.T) {
	for _, offload := range []int{0, unix.TUN_F_CSUM, allOffloads &^ (0x80 | 0x100)} {
		t.Run(fmt.Sprintf("offload=%#x", offload), func(t *testing.T) {
			w := newWire(t, offload)
			eachTunnel(t, func(t *testing.T, six, csum bool, inner []byte) {
				const size = 1300
				segs := slowSegment(inner, size, offload != 0)
				hdr, frame := tunnelFrame(t, six, inner, size, csum)
				got := w.send(t, hdr, frame, len(segs))
				want := make([][]byte, len(segs))
				tm, _, _ := template(t, six)
				for k, seg := range segs {
					b := make([]byte, tm.Len())
					tm.Put(b, len(seg), ECT0, uint16(100+k), csum)
					l4, proto := slowL4(seg)
					start, offset := tm.Len()+l4, ChecksumOffsetTCP
					if proto == ProtoUDP {
						offset = ChecksumOffsetUDP
					}
					want[k] = append(b, seg...)
					switch {
					case csum && offload == 0:
						FinishChecksum(want[k], tm.Len()-UDPLen, ChecksumOffsetUDP)
					case csum:
						finishOuterChecksum(want[k], tm.Len()-UDPLen, start, offset)
					}
					h, err := ParseVNetHdr(got[k])
					if partial := (VNetHdr{Flags: VNetNeedsCsum, CsumStart: uint16(start), CsumOffset: uint16(offset)}); err != nil ||
						offload == 0 && h != (VNetHdr{}) || offload != 0 && h != partial {
						t.Errorf("segment %d comes with %+v, %v", k, h, err)
					}
					got[k] = got[k][VNetTunnelHdrLen:]
				}
				samePackets(t, got, want)
			})
		})
	}
}

// The kernel refuses what PutTunnel's comment says it refuses, and takes the rest.
func TestTunnelGSORefused(t *testing.T) {
	w := newWire(t, allOffloads)
	tm, _, _ := template(t, true)
	inner := bigInner(false, ProtoTCP)
	right, frame := tunnelFrame(t, true, inner, 1300, true)
	base, err := ParseVNetHdr(right)
	if err != nil {
		t.Fatal(err)
	}
	outer, net := tm.Len()-UDPLen, tm.Len()
	for name, c := range map[string]struct {
		change     func(h *VNetHdr)
		outer, net int
		want       error
	}{
		"right":             {func(*VNetHdr) {}, outer, net, nil},
		"no outer checksum": {func(h *VNetHdr) { h.Flags &^= VNetTunnelCsum }, outer, net, nil},
		"one segment":       {func(h *VNetHdr) { h.GSOSize = 60000 }, outer, net, nil},
		"both families":     {func(h *VNetHdr) { h.GSOType |= VNetGSOTunnel4 }, outer, net, unix.EINVAL},
		"no inner type":     {func(h *VNetHdr) { h.GSOType = VNetGSOTunnel6 }, outer, net, unix.EINVAL},
		"no needs_csum":     {func(h *VNetHdr) { h.Flags = VNetTunnelCsum }, outer, net, unix.EINVAL},
		"gso size 0":        {func(h *VNetHdr) { h.GSOSize = 0 }, outer, net, unix.EINVAL},
		"outer in the ip":   {func(*VNetHdr) {}, outer - 1, net, unix.EINVAL},
		"inner in the udp":  {func(*VNetHdr) {}, outer, net - 1, unix.EINVAL},
		"checksum in inner": {func(h *VNetHdr) { h.CsumStart -= 2 }, outer, net, unix.EINVAL},
		"no offsets":        {func(*VNetHdr) {}, 0, 0, unix.EINVAL},
		"offset of udp":     {func(h *VNetHdr) { h.CsumOffset = ChecksumOffsetUDP }, outer, net, unix.EINVAL},
	} {
		h := base
		c.change(&h)
		b := make([]byte, VNetTunnelHdrLen)
		h.PutTunnel(b, c.outer, c.net)
		if _, err := unix.Write(w.in, append(b, frame...)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An outer superframe of datagrams (USO), which is not tunnel GSO, gets the same
// header, seeded, and is cut to frames with the header that each would get.
func TestFrameUSO(t *testing.T) {
	w := newWire(t, 0)
	for _, six := range []bool{false, true} {
		const size, n = 1200, 40
		tm, _, _ := template(t, six)
		payload := testBytes(size*n - 17)
		frame := make([]byte, tm.Len())
		tm.Put(frame, len(payload), NotECT, 65530, true) // the id wraps
		hdr := make([]byte, VNetTunnelHdrLen)
		VNetHdr{
			Flags: VNetNeedsCsum, GSOType: VNetGSOUDPL4, HdrLen: uint16(tm.Len()), GSOSize: size,
			CsumStart: uint16(tm.Len() - UDPLen), CsumOffset: ChecksumOffsetUDP,
		}.PutTunnel(hdr, 0, 0)
		var want [][]byte
		for k := range n {
			p := payload[k*size : min((k+1)*size, len(payload))]
			b := make([]byte, tm.Len())
			tm.Put(b, len(p), NotECT, uint16(65530+k), true)
			b = append(b, p...)
			FinishChecksum(b, tm.Len()-UDPLen, ChecksumOffsetUDP)
			want = append(want, b)
		}
		got := w.send(t, hdr, append(frame, payload...), n)
		for k := range got {
			got[k] = got[k][VNetTunnelHdrLen:]
		}
		samePackets(t, got, want)
	}
}
