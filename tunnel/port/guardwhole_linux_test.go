package port

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
)

// TestGuardWhole writes a superpacket to the TAP device whole, in one write that allocates nothing.
func TestGuardWhole(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for six := range 2 {
		w, tap := newWholeWire(t, six)
		runs := &runWriter{}
		ring := NewRing()
		b := tcp4(40 * 1400)
		p := ring.Slot()
		copy(p.Space(), b)
		ring.Commit(len(b))
		p.SegSize, p.Segments, p.Partial, p.CsumStart, p.CsumOffset = 1400, 40, true, 20, encap.ChecksumOffsetTCP
		p.Outer = theirs[six]
		p.Delivered() // as a run is until a send says otherwise
		if !w.whole(runs, ring, p) || p.Verdict != Delivered {
			t.Fatalf("IPv%d: not whole, or with verdict %d", 4+2*six, p.Verdict)
		}
		got := make([]byte, 2*MaxPacket)
		n, err := unix.Read(tap, got)
		if err != nil {
			t.Fatal(err)
		}
		front := encap.VNetTunnelHdrLen + frameHead(six)
		if n != front+len(b) || !bytes.Equal(got[front:n], b) {
			t.Errorf("IPv%d: %d bytes were written, want %d", 4+2*six, n, front+len(b))
		}
		if got := testing.AllocsPerRun(10, func() {
			_ = w.whole(runs, ring, p)
			_, _ = unix.Read(tap, got)
		}); got > 0 {
			t.Errorf("IPv%d: %.0f allocations", 4+2*six, got)
		}
	}
}

// TestWholeFollowsWhatIsQueued: what came before a superpacket leaves before it.
func TestWholeFollowsWhatIsQueued(t *testing.T) {
	w, tapEnd := newWholeWire(t, 0)
	w.frames.out = []int{-1}
	runs, sent := newRunWriter(w, UDPOptions{}, "whole", true), 0
	runs.outlet.Store(&OutletChoice{Outlet: OutletWhole})
	runs.sendmmsg = func(_ int, ms []messageHeader) (int, unix.Errno) {
		if got := new(messageArea).readable(tapEnd); got != (sent > 0) {
			t.Errorf("before system call %d the TAP has something: %t", sent, got)
		}
		sent++
		return len(ms), 0
	}
	ps := packets([]outgoing{{size: 64}, {size: 3040, mss: 1000, recv: Supported}, {size: 64}}, 1472)
	for _, p := range ps {
		p.Outer = theirs[0]
	}
	runs.writeRuns(NewRing(), ps)
	if sent != 2 {
		t.Errorf("%d system calls, want 2", sent)
	}
}

// newWholeWire is path raw's wire at ours with a next hop to theirs, and what is written to its TAP.
func newWholeWire(t testing.TB, six int) (w *frameWire, tapEnd int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	w = &frameWire{&frames{local: ours[six]}, &tap{fd: fds[0], name: "tap", log: slog.New(slog.DiscardHandler)},
		&sockets{}}
	w.tap.offload.set(OffloadTunnel, 0, true)
	w.tap.use.Store(true)
	w.frames.hops.Store(&hops{})
	w.frames.setNextHops(map[netip.Addr]NextHop{theirs[six].Addr(): {Local: encap.MAC{2, 0, 0, 0, 0, 1},
		Remote: encap.MAC{2, 0, 0, 0, 0, 2}}})
	(*w.frames.hops.Load())[theirs[six].Addr()].confirm.Store(1 << 62)
	return w, fds[1]
}
