package rights

import (
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is both ends of a socket of packets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// TestDescriptorsCross sends a pipe's end: it works at the other side, is closed on exec there, and stays the
// sender's.
func TestDescriptorsCross(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := Send(a, []byte("one"), []int{int(w.Fd())}); err != nil {
		t.Fatal(err)
	}
	var buf [16]byte
	m, err := Receive(b, buf[:], Most)
	if err != nil || string(buf[:m.N]) != "one" || len(m.FDs) != 1 || m.Lost || m.Cut {
		t.Fatalf("%+v %v", m, err)
	}
	if flags, err := unix.FcntlInt(uintptr(m.FDs[0]), unix.F_GETFD, 0); err != nil ||
		flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: a child would have it", flags, err)
	}
	if _, err := unix.Write(m.FDs[0], []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(buf[:1]); err != nil || buf[0] != 'x' {
		t.Errorf("%q, %v", buf[0], err)
	}
	Close(m.FDs)
	if _, err := w.Write([]byte("y")); err != nil {
		t.Errorf("the sender's own: %v", err)
	}
}

// TestWhatDoesNotFitIsSaid receives more bytes and more descriptors than there is room for.
func TestWhatDoesNotFitIsSaid(t *testing.T) {
	a, b := pair(t)
	if err := Send(a, []byte("twenty bytes at least"), []int{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	var buf [4]byte
	m, err := Receive(b, buf[:], 1)
	defer Close(m.FDs)
	if err != nil || !m.Lost || !m.Cut || m.N != len(buf) || len(m.FDs) > 2 { // CMSG_SPACE rounds up
		t.Errorf("%+v %v", m, err)
	}
}

// TestDuplicatesAreAllOrNone duplicates descriptors of which one is none: the others are not left.
func TestDuplicatesAreAllOrNone(t *testing.T) {
	count := func() int {
		l, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	before := count()
	if own, err := Duplicate([]int{0, 1, 1 << 20}); err == nil || own != nil {
		t.Errorf("%v %v", own, err)
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	own, err := Duplicate([]int{0, 1})
	if err != nil || len(own) != 2 || slices.Min(own) < 3 {
		t.Errorf("%v %v", own, err)
	}
	Close(own)
}

// TestPeer asks who is at the other end.
func TestPeer(t *testing.T) {
	a, _ := pair(t)
	if cred, err := Peer(a); err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Geteuid() {
		t.Errorf("%+v %v", cred, err)
	}
	if err := SameUser(a); err != nil {
		t.Error(err)
	}
}

// TestParseRefusesGarbage has control messages that the kernel does not make.
func TestParseRefusesGarbage(t *testing.T) {
	long := []byte{0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0} // claims more than there is
	short := make([]byte, unix.CmsgLen(0))                                     // claims less than its own header
	for _, b := range [][]byte{long, short} {
		if fds, err := Parse(b); err == nil || len(fds) > 0 {
			t.Errorf("%x: %v %v", b, fds, err)
		}
	}
	for _, b := range [][]byte{nil, {1}} { // no message at all
		if fds, err := Parse(b); err != nil || len(fds) > 0 {
			t.Errorf("%x: %v %v", b, fds, err)
		}
	}
}
