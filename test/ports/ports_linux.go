// Package ports gives a test a TCP port that is its own until the test ends, also while nothing listens
// there: a server can be stopped and started again, and meanwhile no other test, process or connection is
// given its port.
package ports

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Hold returns a port of that address, which the test has to itself until it ends. Clients are refused there
// until the test lets something listen; that has to set SO_REUSEADDR, as net.Listen and nearly all servers
// do.
func Hold(t testing.TB, a netip.Addr) netip.AddrPort {
	t.Helper()
	var family int
	var sa unix.Sockaddr
	if a.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	// The kernel chooses a port that nobody has, and gives a port that a socket has to nobody, neither to who
	// binds to any port nor to who connects. Only who names it can have it besides, and only since this socket
	// does not listen and, once it is bound, allows that.
	if err := unix.Bind(fd, sa); err != nil {
		t.Fatalf("bind to a port of %s: %v", a, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	sa, err = unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(a, uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(a, uint16(sa.Port))
	}
	t.Fatalf("getsockname returned %T", sa)
	return netip.AddrPort{}
}

// Loopback is Hold of 127.0.0.1.
func Loopback(t testing.TB) netip.AddrPort {
	t.Helper()
	return Hold(t, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}
