package port

import (
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
)

// TestNobodyWaitsWhereFramesLeave: no socket that frames leave by is one of those that a worker waits at.
// Otherwise the kernel goes to wake somebody for each frame that it has cut out of a superframe and sent, 43
// times for each of them.
func TestNobodyWaitsWhereFramesLeave(t *testing.T) {
	netns.Need(t)
	const loopback, workers = 1, 2
	f, err := openFrames(RawOptions{Link: loopback}, netip.MustParseAddrPort("127.0.0.1:8285"), workers,
		&OffloadSwitch{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.close() }()
	if len(f.queues()) != workers || len(f.out) != workers {
		t.Fatalf("%d sockets to receive by and %d to send by, want %d of each", len(f.queues()),
			len(f.out), workers)
	}
	for _, q := range f.queues() {
		if slices.Contains(f.out, q.PollFD()) {
			t.Errorf("socket %d is waited at, and sent by", q.PollFD())
		}
	}

	ring, runs := NewRing(), frameRuns(f)
	for i, out := range f.out { // whatever is written is read at the other end
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = unix.Close(ends[1]), unix.Close(out) })
		f.out[i], ring.Worker = ends[0], i
		ps := packets(of(0, 64), 1472)
		runs.writeRuns(ring, ps)
		var b [256]byte
		n, err := unix.Read(ends[1], b[:])
		if want := encap.VNetHdrLen + frameHead(0) + 64; n != want || err != nil || ps[0].Verdict != Delivered {
			t.Errorf("worker %d sent %d bytes by its socket (%v), want %d; verdict %d", i, n, err, want, ps[0].Verdict)
		}
	}
}

// A socket hears nothing before it is in the group that shares the frames: it would hear all of them.
func TestFramesAreDeafAtFirst(t *testing.T) {
	netns.Need(t)
	f, err := openFrames(RawOptions{Link: 1}, netip.MustParseAddrPort("127.0.0.1:8285"), 2, &OffloadSwitch{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.close() }()
	for _, fd := range f.fds {
		n := uint32(0) // of instructions, where none are asked for
		if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_GET_FILTER, 0,
			uintptr(unsafe.Pointer(&n)), 0); errno != 0 || n != 1 {
			t.Errorf("a filter of %d instructions, %v", n, errno)
		}
	}
}

// A frame that cannot be described costs a packet, and not the port.
func TestFramesThatCannotBeDescribed(t *testing.T) {
	// The kernel answers a read from a stream socket without another end with EINVAL.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	f := &frames{local: netip.MustParseAddrPort("127.0.0.1:8285")}
	ring := NewRing()
	ring.Reset(0)
	if err := f.read(fd, ring); err != nil {
		t.Error(err)
	}
}

// TestFullPacketSocketIsWaitedForOnceATurn is TestFullSocketIsWaitedForOnceATurn for path raw.
func TestFullPacketSocketIsWaitedForOnceATurn(t *testing.T) {
	// and nobody reads
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) }()
	f, ring, count := &frames{out: fds[:1]}, NewRing(), MaxReads
	runs := frameRuns(f)
	write := func() (dropped int) {
		ps := packets(of(0, slices.Repeat([]int{1400}, count)...), 1472)
		ring.Reset(0)
		runs.writeRuns(ring, ps)
		for _, p := range ps {
			if p.Verdict == verdictDrop+Verdict(DropBusy) {
				dropped++
			}
		}
		return dropped
	}
	for write() == 0 {
	}
	for range 2 {
		if got := write(); got != count {
			t.Errorf("%d of %d frames are dropped as busy", got, count)
		}
		if ring.Writes > count+4 { // a signal ends a wait early
			t.Errorf("%d frames meet the full socket %d times", count, ring.Writes)
		}
	}
}

// frameRuns writes frames of one datagram each to f, with a next hop to the peer that packets makes them for.
func frameRuns(f *frames) *runWriter {
	f.hops.Store(&hops{})
	f.local = ours[0]
	to := addr("192.0.2.2")
	f.setNextHops(map[netip.Addr]NextHop{to: {Local: encap.MAC{2}, Remote: encap.MAC{4}}})
	(*f.hops.Load())[to].confirm.Store(1 << 62)
	return newRunWriter(&frameWire{f, &tap{}, &sockets{}}, UDPOptions{}, "frames", false)
}

// TestKernelSendsNowAndThen: only what the kernel sends itself makes it ask whether the neighbour is there.
func TestKernelSendsNowAndThen(t *testing.T) {
	const socket, packetSocket = -7, -8
	f := &frames{out: []int{packetSocket}}
	runs := frameRuns(f)
	wire := runs.wire.(*frameWire)
	wire.sockets = &sockets{group: []*UDPSocket{{fd: socket}}}
	var fds []int
	runs.sendmmsg = func(fd int, ms []messageHeader) (int, unix.Errno) {
		fds = append(fds, fd)
		return len(ms), 0
	}
	ring := NewRing()
	(*f.hops.Load())[addr("192.0.2.2")].confirm.Store(0)
	for _, at := range []int64{1, 2, int64(confirmEvery), int64(confirmEvery) + 1} {
		ring.Reset(0)
		ring.now = at
		runs.writeRuns(ring, packets(of(0, 64), 1472))
	}
	if want := []int{socket, packetSocket, packetSocket, socket}; !slices.Equal(fds, want) {
		t.Errorf("runs leave by sockets %v, want %v", fds, want)
	}
}

// TestTAPTakesSuperpacketsWithRoom: a TAP on the path refuses one that has one segment, and the headers of
// the outer packet need all of the headroom.
func TestTAPTakesSuperpacketsWithRoom(t *testing.T) {
	d := &tap{}
	d.offload.set(OffloadTunnel, 0, true)
	d.use.Store(true)
	for _, tt := range []struct {
		p    state
		want bool
	}{
		{state{off: Headroom, Partial: true, Segments: 2}, true},
		{state{off: Headroom, Partial: true, Segments: 1}, false},
		{state{off: Headroom - 8, Partial: true, Segments: 2}, false},
		{state{off: Headroom, Segments: 2}, false},
	} {
		if got := d.accepts(&Packet{state: tt.p}); got != tt.want {
			t.Errorf("%d segments at %d, partial %t: taken %t", tt.p.Segments, tt.p.off, tt.p.Partial, got)
		}
	}
}
