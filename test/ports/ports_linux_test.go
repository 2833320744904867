package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// TestAPortStaysTheTests: the test can listen, stop and listen again, and clients are refused meanwhile.
func TestAPortStaysTheTests(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "::1"} {
		at := Hold(t, netip.MustParseAddr(a))
		for range 3 {
			if c, err := net.Dial("tcp", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("%v, %v: want that nobody answers at %s", c, err, at)
			}
			l, err := net.Listen("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			in, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			// The server's end closes first, which leaves its side of the connection in TIME_WAIT.
			for _, end := range []interface{ Close() error }{in, l, c} {
				if err := end.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestNobodyElseGetsThePort: in a network namespace in which the kernel has four ports to give, all are given
// but the held one.
func TestNobodyElseGetsThePort(t *testing.T) {
	n := netns.New(t, "ports")
	err := n.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40003"), 0); err != nil {
			return err
		}
		held := Loopback(t)
		// To listen at any port, from which it takes only the even half first, and then the odd one.
		var listeners []net.Listener
		defer func() {
			for _, l := range listeners {
				_ = l.Close()
			}
		}()
		for {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if errors.Is(err, unix.EADDRINUSE) {
				break
			}
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
			if l.Addr().String() == held.String() {
				return errors.New("who listens at any port got the held one")
			}
		}
		if len(listeners) != 3 {
			return fmt.Errorf("%d listeners, want the other three ports", len(listeners))
		}
		// To connect, from whatever is left.
		target := listeners[0].Addr().String()
		for _, l := range listeners[1:] {
			_ = l.Close()
		}
		for range 3 {
			c, err := net.Dial("tcp", target)
			if errors.Is(err, unix.EADDRNOTAVAIL) {
				break
			}
			if err != nil {
				return err
			}
			defer c.Close()
			if c.LocalAddr().String() == held.String() {
				return errors.New("who connects got the held port")
			}
		}
		// To bind to it alone.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: held.Addr().As4(), Port: int(held.Port())}); !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("bound to it: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
