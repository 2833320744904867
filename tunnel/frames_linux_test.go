package tunnel

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// TestNobodyWaitsWhereFramesLeave: no socket that frames leave by is one of those that a worker waits at.
// Otherwise the kernel goes to wake somebody for each frame that it has cut out of a superframe and sent, 43
// times for each of them.
func TestNobodyWaitsWhereFramesLeave(t *testing.T) {
	netns.Need(t)
	const loopback, workers = 1, 2
	f, err := openFrames(RawOptions{Link: loopback}, netip.MustParseAddrPort("127.0.0.1:8285"), workers,
		&offload{})
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

	ring := NewRing()
	for i, out := range f.out { // whatever is written is read at the other end
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = unix.Close(ends[1]), unix.Close(out) })
		f.out[i], ring.worker = ends[0], i
		if errno := f.send(ring, []unix.Iovec{iovec([]byte("frame"))}); errno != 0 {
			t.Fatal(errno)
		}
		var b [16]byte
		if n, err := unix.Read(ends[1], b[:]); err != nil || string(b[:n]) != "frame" {
			t.Errorf("worker %d sent %q by its socket (%v)", i, b[:max(0, n)], err)
		}
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
	f, ring, frame := &frames{out: fds[:1]}, NewRing(), [1]unix.Iovec{iovec(make([]byte, 1400))}
	for f.send(ring, frame[:]) == 0 {
	}
	for range 2 {
		ring.reset()
		for range maxReads {
			if errno := f.send(ring, frame[:]); errno != unix.EAGAIN {
				t.Errorf("the send fails with %v", errno)
			}
		}
		if ring.writes > maxReads+4 { // a signal ends a wait early
			t.Errorf("%d frames meet the full socket %d times", maxReads, ring.writes)
		}
	}
}
