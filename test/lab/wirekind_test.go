package lab

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab/probe"
	"weft/test/netns"
)

// TestWires shows, by the length of the frames that a device sends, which superpackets cross from node to
// node whole on each kind of wire, and that what was cut is joined where it arrives.
func TestWires(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for _, c := range []struct {
		kind        string
		run, tunnel bool
	}{
		{kind: WireFull, run: true, tunnel: true},
		{kind: WireUSO, run: true},
		{kind: WirePlain},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s direct=%t", c.kind, direct), func(t *testing.T) {
				t.Parallel()
				l := up(t, Spec{Driver: KernelVXLAN, Wire: c.kind, Direct: direct, PodsPerNode: 1})
				type place struct {
					host   *Host
					device string
				}
				places := []place{{l.Node(1).Host, underlayDev}}
				if !direct { // the second cable, too
					places = append(places, place{l.Wire, "node2"})
				}
				var taps []*tap
				for _, p := range places {
					taps = append(taps, newTap(t, p.host, p.device))
				}
				longest := func(protocol byte) (all []int) {
					for _, p := range taps {
						all = append(all, p.longest(t, protocol))
					}
					return all
				}
				check := func(what string, all []int, whole bool) {
					t.Helper()
					for i, n := range all {
						if n == 0 || n > 1514 != whole {
							t.Errorf("%s: the longest frame that %s of %s sent has %d bytes, and it should cross whole: %t", what,
								places[i].device, places[i].host.Name, n, whole)
						}
					}
				}
				reads := sendRun(t, l)
				check("a run of datagrams", longest(unix.IPPROTO_UDP), c.run)
				if reads != 1 {
					t.Errorf("%d reads of a run by a socket with UDP_GRO: what was cut was not joined again", reads)
				}
				got, err := probe.Stream(await.Context(t, 20*time.Second), probe.StreamPlan{
					From: l.Pods()[0].Endpoint(4), To: l.Pods()[1].Endpoint(4), Duration: 100 * time.Millisecond,
				})
				if err != nil || got.Received == 0 {
					t.Fatalf("%d bytes, %v", got.Received, err)
				}
				check("a tunnel's superpacket", longest(unix.IPPROTO_UDP), c.tunnel)
				t.Logf("TCP in vxlan: %.1f Gb/s, %d segments sent again", got.BitsPerSecond()/1e9, got.Retransmits)
			})
		}
	}
}

// sendRun sends ten datagrams of 1000 bytes by one call from node 1 to node 2, and returns how many reads
// they took there.
func sendRun(t *testing.T, l *Lab) (reads int) {
	t.Helper()
	const size, count = 1000, 10
	open := func(n *Node, option int, value int) (fd int) {
		if err := n.Do(func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_UDP, option, value))
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	to := open(l.Node(2), unix.UDP_GRO, 1)
	addr := &unix.SockaddrInet4{Addr: l.Node(2).Underlay4.As4(), Port: 4000}
	timeout := unix.NsecToTimeval(int64(10 * time.Second))
	if err := errors.Join(unix.Bind(to, addr), unix.SetsockoptTimeval(to, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&timeout)); err != nil {
		t.Fatal(err)
	}
	from := open(l.Node(1), unix.UDP_SEGMENT, size)
	if err := unix.Sendto(from, make([]byte, size*count), 0, addr); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	for left := size * count; left > 0; reads++ {
		n, _, err := unix.Recvfrom(to, buf, 0)
		if err != nil {
			t.Fatalf("%d bytes of the run have not arrived: %v", left, err)
		}
		left -= n
	}
	return reads
}

// tap is a packet socket that sees what a device sends, as its driver gets it: what the device cannot cut is
// cut already.
type tap struct{ fd int }

func newTap(t *testing.T, h *Host, device string) *tap {
	t.Helper()
	p := &tap{fd: -1}
	err := h.Do(func() error {
		// Protocol 0: it hears nothing before it is bound to the device.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		p.fd = fd
		ifi, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifi.Index}),
		)
	})
	t.Cleanup(func() { _ = unix.Close(p.fd) })
	if err != nil {
		t.Fatalf("tap of %s of %s: %v", device, h.Name, err)
	}
	return p
}

// longest returns the length of the longest IPv4 frame of a protocol that was sent since the last call, 0 if
// there was none.
func (p *tap) longest(t *testing.T, protocol byte) (most int) {
	t.Helper()
	frame := make([]byte, 64)
	for {
		n, from, err := unix.Recvfrom(p.fd, frame, unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			return most
		}
		if err != nil {
			t.Fatal(err)
		}
		const ethernet, ipProtocol = 14, 9
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING && frame[12] == 0x08 && frame[13] == 0 &&
			frame[ethernet+ipProtocol] == protocol {
			most = max(most, n)
		}
	}
}

func htons(v uint16) uint16 {
	b := [2]byte{byte(v >> 8), byte(v)}
	return *(*uint16)(unsafe.Pointer(&b))
}
