package tunnel_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/tunnel"
	"weft/tunnel/port"
)

// newPod makes a namespace whose eth0 is a port of node i's engine, as a client does: the device is made in
// the node's namespace and moved.
func (o *overlay) newPod(t testing.TB, i, mtu int, addrs ...string) (*host, *port.OffloadTUN) {
	t.Helper()
	pod := newHost(t)
	var p port.NamedPort
	o.hosts[i].Do(t, func() error {
		fd, err := openDevice("moving", unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR)
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("moving")
		if err == nil {
			err = netlink.LinkSetNsFd(link, pod.FD())
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		p, err = port.PodTUN(fd, 0, nil)
		return err
	})
	pod.Do(t, func() error {
		link, err := netlink.LinkByName("moving")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetName(link, "eth0"), netlink.LinkSetMTU(link, mtu)); err != nil {
			return err
		}
		for _, a := range addrs {
			dst := "0.0.0.0/0"
			if bits := "/32"; strings.Contains(a, ":") {
				dst, bits = "::/0", "/128"
				err = addAddr("eth0", a+bits)
			} else {
				err = addAddr("eth0", a+bits)
			}
			if err != nil {
				return err
			}
			all, err := netlink.ParseIPNet(dst)
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all,
				Scope: netlink.SCOPE_LINK}); err != nil {
				return err
			}
		}
		return nil
	})
	id, err := o.engines[i].AttachPod(p, tunnel.PodOptions{Addrs: prefixAddrs(addrs...), MTU: mtu})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.engines[i].Detach(id) }) // it may have ended before
	return pod, p.(*port.OffloadTUN)
}

// translation is what a host with Services has in its firewall: backends of this node, of another, and the
// client itself, which is masqueraded.
const translation = `
table inet services {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr 10.96.0.1 dnat ip to 10.1.1.6
		ip daddr 10.96.0.2 dnat ip to 10.1.2.7
		ip daddr 10.96.0.3 dnat ip to 10.1.1.5
		ip6 daddr fd00:96::1 dnat ip6 to fd00:1:1::6
		ip6 daddr fd00:96::2 dnat ip6 to fd00:1:2::7
		ip6 daddr fd00:96::3 dnat ip6 to fd00:1:1::5
	}
	chain postrouting {
		type nat hook postrouting priority srcnat
		ip saddr 10.1.1.5 ip daddr 10.1.1.5 masquerade
		ip6 saddr fd00:1:1::5 ip6 daddr fd00:1:1::5 masquerade
	}
	chain forward {
		type filter hook forward priority filter
		ct state invalid drop
	}
}
`

// TestPodsAndServicesOverTUN has pods with TUNs of their own on two nodes, and a host that translates
// Services with nftables and drops what its connection tracking does not understand. TCP and UDP, both
// families: straight, and by a Service.
func TestPodsAndServicesOverTUN(t *testing.T) {
	const mtu = 1400
	o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{{}, {portable: true}})
	o.hosts[0].Do(t, func() error {
		nft := exec.Command("nft", "-f", "-") // Debian: nftables
		nft.Stdin = strings.NewReader(translation)
		out, err := nft.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	})
	a, tunA := o.newPod(t, 0, mtu, "10.1.1.5", "fd00:1:1::5")
	b, tunB := o.newPod(t, 0, mtu, "10.1.1.6", "fd00:1:1::6")
	remote, _ := o.newPod(t, 1, mtu, "10.1.2.7", "fd00:1:2::7")
	for _, server := range []*host{a, b, remote} {
		serve(t, server)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MB
	for _, to := range []string{
		"10.1.1.6", "10.1.2.7", "10.96.0.1", "10.96.0.2", "10.96.0.3",
		"fd00:1:1::6", "fd00:1:2::7", "fd00:96::1", "fd00:96::2", "fd00:96::3", "10.1.1.6",
	} {
		to = net.JoinHostPort(to, "8080")
		if got, err := ask(t, a, "tcp", to, data); err != nil || !bytes.Equal(got, data) {
			t.Errorf("TCP to %s: %d bytes came back, %v", to, len(got), err)
		}
		for _, size := range []int{9, 1300, 4000} { // the last in fragments
			if got, err := ask(t, a, "udp", to, data[:size]); err != nil || !bytes.Equal(got, data[:size]) {
				t.Errorf("UDP to %s: of %d bytes %d came back, %v", to, size, len(got), err)
			}
		}
	}
	for name, tun := range map[string]*port.OffloadTUN{"the client's": tunA, "the backend's": tunB} {
		if s := tun.Offloads(); s[0].Calls == 0 {
			t.Errorf("%s TUN gave no superpackets: %+v", name, s)
		}
	}
	for _, p := range o.engines[0].Pods() {
		p.Drops[port.DropMulticast] = 0 // what a kernel says to its link
		if p.Drops != [port.NumDropReasons]uint64{} || p.RxDrops != p.Drops || p.RxPackets == 0 {
			t.Errorf("pod %v has %+v", p.Addrs, p)
		}
	}
	balanced(t, o.engines[0].Stats())
}

// serve sends back what comes to port 8080 in the host's namespace.
func serve(t testing.TB, h *host) {
	t.Helper()
	h.Do(t, func() error {
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		u, err := net.ListenPacket("udp", ":8080")
		if err != nil {
			return errors.Join(err, l.Close())
		}
		t.Cleanup(func() { _, _ = l.Close(), u.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c) // the client says what is missing
				}()
			}
		}()
		go func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := u.ReadFrom(b)
				if err != nil {
					return // closed
				}
				_, _ = u.WriteTo(b[:n], from)
			}
		}()
		return nil
	})
}

// ask sends data from the host's namespace and returns what comes back.
func ask(t testing.TB, h *host, network, to string, data []byte) (got []byte, err error) {
	t.Helper()
	h.Do(t, func() error {
		c, dialed := net.DialTimeout(network, to, within)
		if err = dialed; err != nil {
			return nil
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(within))
		sent := make(chan error, 1)
		go func() {
			_, err := c.Write(data)
			sent <- err
		}()
		got = make([]byte, len(data))
		n, failed := io.ReadFull(c, got)
		got, err = got[:n], errors.Join(failed, <-sent)
		return nil
	})
	return got, err
}
