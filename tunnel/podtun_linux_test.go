package tunnel_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/tunnel"
	"weft/tunnel/port"
)

// openDevice opens a TUN or TAP in the current namespace as another process would, with offloads of its own.
// The caller closes the descriptor.
func openDevice(name string, flags uint16) (fd int, err error) {
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 1) // TUN_F_CSUM and nothing else
}

// TestPodTUN takes over descriptors as clients hand them in. A TUN that was moved into a pod's namespace is
// one like any other, and its port dies with that namespace.
func TestPodTUN(t *testing.T) {
	t.Parallel()
	const tun = unix.IFF_TUN | unix.IFF_NO_PI
	here := newHost(t)
	for name, tt := range map[string]struct {
		flags uint16
		says  string // what the refusal has; "" if it is taken
		super bool
	}{
		"with a virtio-net header": {tun | unix.IFF_VNET_HDR, "", true},
		"without":                  {tun, "", false},
		"of several queues":        {tun | unix.IFF_MULTI_QUEUE, "several queues", false},
		"of a TAP":                 {unix.IFF_TAP | unix.IFF_NO_PI, "TAP", false},
	} {
		here.Do(t, func() error {
			fd, err := openDevice("pod%d", tt.flags)
			if err != nil {
				return err
			}
			p, err := port.PodTUN(fd, 0, nil)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: %v, want one that says %q", name, err, tt.says)
				}
				return nil
			}
			if err != nil {
				return err
			}
			defer p.Close()
			if !strings.HasPrefix(p.Name(), "pod") {
				t.Errorf("%s: it is called %q", name, p.Name())
			}
			o, super := p.(*port.OffloadTUN)
			if super != tt.super {
				t.Fatalf("%s: it is a %T", name, p)
			}
			for i := range 4 * map[bool]int{true: 1}[super] {
				if s := o.Offloads()[i]; s.State != port.OffloadOn {
					t.Errorf("%s: %v is %v", name, s.Offload, s.State)
				}
			}
			return nil
		})
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := port.PodTUN(fd, 0, nil); err == nil || !strings.Contains(err.Error(), "not a TUN") {
		t.Errorf("a descriptor of no TUN: %v", err)
	}

	pod := newHost(t)
	var p port.NamedPort
	here.Do(t, func() error {
		fd, err := openDevice("moved0", tun|unix.IFF_VNET_HDR)
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("moved0")
		if err == nil {
			err = netlink.LinkSetNsFd(link, pod.FD())
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		p, err = port.PodTUN(fd, 0, nil)
		return err
	})
	lost := make(chan tunnel.PortID, 1)
	n := start(t, spec(), tunnel.Config{PortLost: func(id tunnel.PortID, _ error) { lost <- id }})
	id, err := n.AttachPod(p, tunnel.PodOptions{Addrs: prefixAddrs("10.1.1.5"), MTU: 1400})
	if err != nil {
		t.Fatal(err)
	}
	pod.Do(t, func() error {
		link, err := netlink.LinkByName("moved0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if got := receive(t, lost); got != id {
		t.Errorf("port %d is lost, want %d", got, id)
	}
	if l := n.Pods(); len(l) != 1 || !l[0].Lost {
		t.Errorf("pods %+v, want one that is lost", l)
	}
	if err := n.Detach(id); err != nil {
		t.Error(err)
	}
}
