package port

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
)

// What ICMP says of a datagram reaches the port that sent it, with who says it.
func TestSocketIsToldThatNothingListens(t *testing.T) {
	for _, c := range []struct{ local, to string }{{"127.0.0.1:0", "127.0.0.2"}, {"[::1]:0", "::1"}} {
		s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort(c.local)})
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddr(c.to)
		var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16(), Port: 9}
		if to.Is4() {
			sa = &unix.SockaddrInet4{Addr: to.As4(), Port: 9}
		}
		var got []SendError
		await.True(t, "the message about "+c.to, func() bool {
			// the kernel's budget of such messages is that of all tests on this host
			if err := unix.Sendto(s.fd, []byte("nobody"), 0, sa); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			s.ReadErrors(time.Now().UnixNano(), func(e SendError) { got = append(got, e) })
			return len(got) > 0
		})
		if e := got[0]; e.Why != UnreachablePort || e.By != to || e.Dst != to || e.TooBig {
			t.Errorf("%s: got %+v", c.to, e)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnreachableByTypeAndCode(t *testing.T) {
	for _, c := range []struct {
		six        bool
		kind, code byte
		want       UnreachableWhy
	}{
		{false, 3, 0, UnreachableNet}, {false, 3, 1, UnreachableHost}, {false, 3, 3, UnreachablePort},
		{false, 3, 4, 0}, {false, 3, 13, UnreachableProhibited},
		{false, 3, 2, UnreachableProtocol}, {false, 3, 5, UnreachableOther}, {false, 11, 0, 0}, {false, 1, 4, 0},
		{true, 1, 0, UnreachableNet}, {true, 1, 1, UnreachableProhibited}, {true, 1, 3, UnreachableHost},
		{true, 1, 4, UnreachablePort}, {true, 1, 2, UnreachableOther},
		{true, 2, 0, 0}, {true, 3, 0, 0},
	} {
		if got := whyOf(c.six, c.kind, c.code); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
