package port

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
)

// claimer sends messages about datagrams of a socket on the loopback, as anybody on the way may.
type claimer struct {
	fd    int
	to    unix.Sockaddr
	claim []byte
}

func newClaimer(t *testing.T, about *UDPSocket) *claimer {
	t.Helper()
	netns.Need(t)
	family, proto, addr := unix.AF_INET, unix.IPPROTO_ICMP, about.local.Addr()
	if addr.Is6() {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	port := about.local.Port()
	udp := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), 9)
	udp = append(udp, 0, 100, 0, 0)
	c := &claimer{fd: fd}
	if addr.Is6() {
		c.to = &unix.SockaddrInet6{Addr: addr.As16()}
		// the kernel sums
		c.claim = append([]byte{2, 0, 0, 0, 0, 0, 5, 0}, 0x60, 0, 0, 0, 0, 100, unix.IPPROTO_UDP, 64)
		c.claim = append(append(append(c.claim, addr.AsSlice()...), addr.AsSlice()...), udp...)
		return c
	}
	c.to = &unix.SockaddrInet4{Addr: addr.As4()}
	c.claim = append([]byte{3, 4, 0, 0, 0, 0, 5, 0}, 0x45, 0, 0, 120, 0, 1, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0)
	c.claim = append(append(append(c.claim, addr.AsSlice()...), addr.AsSlice()...), udp...)
	binary.BigEndian.PutUint16(c.claim[2:], encap.Checksum(c.claim))
	return c
}

func (c *claimer) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := unix.Sendto(c.fd, c.claim, 0, c.to); err != nil {
			t.Fatal(err)
		}
	}
}

// told reports whether epoll would say that the socket has errors, within that time.
func (s *UDPSocket) told(t *testing.T, within time.Duration) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(s.fd)}}
	if _, err := unix.Poll(p, int(within.Milliseconds())); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
	return p[0].Revents&unix.POLLERR != 0
}

// hears is what the kernel is told about errors.
func hears(t *testing.T, fd int, six bool) bool {
	t.Helper()
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if six {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	v, err := unix.GetsockoptInt(fd, level, option)
	if err != nil {
		t.Fatal(err)
	}
	return v != 0
}

// Of a flood of errors some are read, the kernel drops the rest without waking anybody, and afterwards errors
// are heard again.
func TestFloodOfErrorsIsNotRead(t *testing.T) {
	for name, local := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort(local)})
				if err != nil {
					t.Fatal(err)
				}
				c, six, got := newClaimer(t, s), s.local.Addr().Is6(), 0
				read := func() bool { // all that came
					return s.ReadErrors(time.Now().UnixNano(), func(e SendError) {
						if !e.TooBig || e.MTU != 1280 {
							t.Errorf("%+v", e)
						}
						got++
					})
				}
				flood := func() {
					t.Helper()
					c.send(t, 3*MaxErrors)
					for !read() {
						if !s.told(t, 10*time.Second) {
							t.Fatalf("%d errors were read, and no more came", got)
						}
					}
				}
				flood()
				if got != MaxErrors || hears(t, s.fd, six) {
					t.Fatalf("%d errors were read of a flood, want %d; more are heard: %v", got, MaxErrors,
						hears(t, s.fd, six))
				}
				// the last one's mark, which ReadBatch takes off
				_, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
				c.send(t, MaxErrors)
				if s.told(t, 20*time.Millisecond) {
					t.Error("whoever waits for the socket is woken by errors that nobody reads")
				}
				time.Sleep(ErrorWindow)
				s.Unmute()
				c.send(t, 1)
				if !s.told(t, 10*time.Second) || read() || got <= MaxErrors {
					// what had waited in the kernel may come, too
					t.Fatalf("%d errors were read after the flood, want more than %d", got, MaxErrors)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestErrorsAreHeardAgain has a socket hear errors after a flood, and whoever takes up one that another
// process has left mute.
func TestErrorsAreHeardAgain(t *testing.T) {
	s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	s.Mute()
	fd, err := unix.Dup(s.fd)
	if err != nil {
		t.Fatal(err)
	}
	if hears(t, fd, false) {
		t.Fatal("it hears: there is nothing to try")
	}
	heir, err := UDPFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	if !hears(t, fd, false) {
		t.Error("whoever takes the socket up is deaf for good")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	heir.Mute()
	heir.Unmute()
	if !hears(t, fd, false) {
		t.Error("it is deaf after a flood")
	}
	_ = heir.Close()
}

// TestOwnTooBigIsSentTwice: the kernel says of a datagram that it is too big. It may have said that of an
// earlier one, and so there is one repetition.
func TestOwnTooBigIsSentTwice(t *testing.T) {
	s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := NewRing()
	p := r.Slot()
	r.Commit(MaxPacket - 10) // and 28 bytes of headers
	p.Outer = s.local
	o := &OffloadSocket{sockets: &sockets{group: []*UDPSocket{s}}}
	o.runs = newRunWriter(o.sockets, UDPOptions{}, "own", true)
	for name, port := range map[string]Port{"offload": o, "portable": s} {
		r.Writes, p.Verdict = 0, Pending
		if port.WriteBatch(r, []*Packet{p}); r.Writes != 2 || p.Verdict.Reason() != DropTooBig {
			t.Errorf("%s: sent %d times, and dropped as %v", name, r.Writes, p.Verdict.Reason())
		}
	}
}

// TestReadErrorsIsSmall bounds the memory of a call that anyone on the way can cause
// with an ICMP message: a few hundred bytes, and not a worker's whole area.
func TestReadErrorsIsSmall(t *testing.T) {
	s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const calls = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		s.ReadErrors(0, func(SendError) {})
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / calls; n > 4096 {
		t.Errorf("%d bytes allocated a call", n)
	}
}
