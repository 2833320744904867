package routing

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUDPSendersSeeICMPErrors asks the kernel, not the data plane: an error that is
// written to the TUN has its own address as source, and must not be taken for a martian.
func TestUDPSendersSeeICMPErrors(t *testing.T) {
	k := inNamespace(t)
	etherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := newTestUDP(t, k, true)
	apply(t, u, testSet("10.5.1.0/24", true))
	start(t, u)
	for _, tt := range []struct {
		name, to string
		want     unix.Errno
	}{
		{"no route", "10.5.9.7", unix.ENETUNREACH},
		{"no route, IPv6", "fd00:5:0:9::7", unix.ENETUNREACH},
		{"IPv6 to a peer of flannel", "fd00:5:0:2::7", unix.ENETUNREACH},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c net.Conn
			err := k.Do(func() (err error) {
				c, err = net.Dial("udp", netip.AddrPortFrom(addr(tt.to), 9).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			// UDP hides "network unreachable" unless it is asked for.
			raw, err := c.(*net.UDPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var opt error
			err = raw.Control(func(fd uintptr) {
				if addr(tt.to).Is6() {
					opt = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
				} else {
					opt = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
				}
			})
			if err := errors.Join(err, opt); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil && !errors.Is(err, tt.want) {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// TestUDPRoutesHoldWithoutAProcess is about hosts whose default takes routes of links
// without carrier out of use: a TUN that nobody holds is one.
func TestUDPRoutesHoldWithoutAProcess(t *testing.T) {
	k := inNamespace(t)
	for _, family := range []string{"ipv4", "ipv6"} {
		file := filepath.Join("/proc/sys/net", family, "conf/default", "ignore_routes_with_linkdown")
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	etherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "route add default via 192.0.2.254")
	ip(t, "-6 route add default via 2001:db8::fffe")
	u := newTestUDP(t, k, true)
	apply(t, u, testSet("10.5.1.0/24", true))
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Device("flannel0"); err != nil {
		t.Fatal(err)
	}
	for _, dst := range []string{"10.5.2.7", "fd00:5:0:2::7"} {
		if out := ip(t, "route get %s", dst); !strings.Contains(out, "dev flannel0") {
			t.Errorf("packets leave by another way: %s", out)
		}
	}
}
