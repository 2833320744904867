package routing

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

// TestUDPSendersSeeICMPErrors asks the kernel, not the data plane: an error that is
// written to the TUN has its own address as source, and must not be taken for a martian.
func TestUDPSendersSeeICMPErrors(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := newTestUDP(t, k, true)
	apply(t, u, testSet("10.5.1.0/24", true))
	start(t, u)
	// The kernel takes an address of IPv6 for its own when a worker of its has been on the CPU, not when it is
	// added. What came before that would be dropped (Ip6InAddrErrors), and each packet is complained of only
	// once.
	await.OK(t, "the kernel takes its address for its own", func() error {
		if local := ip(t, "-6 route show table local dev flannel0"); !strings.Contains(local,
			"local fd00:5:0:1:: ") {
			return errors.New(local)
		}
		return nil
	})
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
			_ = c.SetReadDeadline(time.Now().Add(await.Patience))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v; the data plane has counted %+v; the kernel\n%s", err, tt.want,
					u.Engine().Stats(), counted(t, k))
			}
		})
	}
}

// counted is what the kernel has counted of the namespace's packets and errors, without what is 0.
func counted(t *testing.T, k *kernel.Kernel) string {
	t.Helper()
	var all []byte
	err := k.Do(func() (err error) {
		all, err = exec.Command("nstat", "-a", "-s").Output()
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return string(all)
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
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
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
