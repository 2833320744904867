package presence

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

var (
	pfx, addr = netip.MustParsePrefix, netip.MustParseAddr

	// net4 and net6 are the overlay's networks in tests.
	net4, net6 = pfx("10.5.0.0/16"), pfx("fd00:5::/48")
)

// TestHostClaim: a network belongs to one process in a network namespace, until that ends; another network
// and another namespace are free.
func TestHostClaim(t *testing.T) {
	k := inNamespace(t)
	config := lease.NetworkConfig{EnableIPv4: true, Network: net4, EnableIPv6: true, IPv6Network: net6}
	claim := func(k *kernel.Kernel, c lease.NetworkConfig, patience time.Duration) (*HostClaim, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		h := new(HostClaim)
		return h, h.Network(ctx, k, c)
	}
	taken := func(err error) {
		t.Helper()
		var e *HostTakenError
		if !errors.As(err, &e) || e.PID != os.Getpid() {
			t.Fatalf("%v, want that process %d has it", err, os.Getpid())
		}
	}
	first, err := claim(k, config, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Network(t.Context(), k, config); err != nil {
		t.Errorf("again: %v", err)
	}
	_, err = claim(k, config, 20*time.Millisecond)
	taken(err)
	_, err = claim(k, lease.NetworkConfig{EnableIPv6: true, IPv6Network: net6}, 20*time.Millisecond)
	taken(err)
	other, err := claim(k, lease.NetworkConfig{EnableIPv4: true, Network: pfx("10.6.0.0/16")}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Port(t.Context(), k, 8285); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	taken(first.Port(ctx, k, 8285))
	elsewhere, err := claim(newNamespace(t), config, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { // waited for below
		c, err := claim(k, config, 10*time.Second)
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the first has ended: %v", err)
	}

	for _, c := range []*HostClaim{other, elsewhere} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStrangerIsNoClaim: a user without rights cannot keep weftd from starting by taking the name of its
// network, whether his socket listens, only has the name, or has a full queue. Only our own socket is a
// claim, however many have asked it.
func TestStrangerIsNoClaim(t *testing.T) {
	netns.Root(t, "only root can become another user")
	k := inNamespace(t)
	at := &unix.SockaddrUnix{Name: "@weft/network/" + net4.String()}
	claim := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*claimEvery)
		defer cancel()
		h := new(HostClaim)
		return errors.Join(h.Network(ctx, k, lease.NetworkConfig{EnableIPv4: true, Network: net4}), h.Close())
	}
	connect := func() (int, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return fd, errors.Join(err, unix.Connect(fd, at))
	}
	for name, squat := range map[string]func(fd int) error{
		"listens":  func(fd int) error { return unix.Listen(fd, unix.SOMAXCONN) },
		"is bound": func(int) error { return nil },
		"is full": func(fd int) error {
			if err := unix.Listen(fd, 0); err != nil {
				return err
			}
			c, err := connect()
			return errors.Join(err, unix.Close(c))
		},
	} {
		stranger := make(chan int, 1)
		if err := asNobody(k, func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			stranger <- fd
			bound := unix.Bind(fd, at)
			// A program that another test forks has the former stranger's socket until it is executed.
			for end := time.Now().Add(await.Patience); errors.Is(bound, unix.EADDRINUSE) &&
				time.Now().Before(end); bound = unix.Bind(fd, at) {
				time.Sleep(time.Millisecond)
			}
			return errors.Join(err, bound, squat(fd))
		}); err != nil {
			t.Fatal(err)
		}
		if err := claim(); err == nil || errors.As(err, new(*HostTakenError)) {
			t.Errorf("a stranger's socket %s: %v, want no claim of a weftd's, and a word about it", name, err)
		}
		_ = unix.Close(<-stranger)
	}
	h := new(HostClaim)
	if err := h.Network(t.Context(), k, lease.NetworkConfig{EnableIPv4: true, Network: net4}); err != nil {
		t.Fatal(err)
	}
	for range 2 * unix.SOMAXCONN {
		await.Within(t, 10*time.Second, "the claim's queue has room", func() error {
			fd, err := connect()
			return errors.Join(err, unix.Close(fd))
		})
	}
	if err := claim(); !errors.As(err, new(*HostTakenError)) {
		t.Errorf("beside a weftd: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// asNobody runs f in the namespace on a thread without rights, which ends with it.
func asNobody(k *kernel.Kernel, f func() error) error {
	done := make(chan error, 1)
	go func() { // waited for below
		runtime.LockOSThread()
		done <- k.Do(func() error {
			if _, _, errno := unix.Syscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
				return errno
			}
			return f()
		})
	}()
	return <-done
}

// TestPortFree: a port that another process has is not free, and one that a vxlan device has is the backend's
// business.
func TestPortFree(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := underlay.Link{Name: "eth0", Addr4: addr("192.0.2.1"), Addr6: addr("2001:db8::1")}
	free := func(what string, want bool) {
		t.Helper()
		if err := PortFree(k, u, 8472, 0); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	free("nobody", true)
	for _, at := range []string{"192.0.2.1:8472", "0.0.0.0:8472", "[2001:db8::1]:8472"} {
		var c net.PacketConn
		if err := k.Do(func() (err error) { c, err = net.ListenPacket("udp", at); return err }); err != nil {
			t.Fatal(err)
		}
		free(at, false)
		_ = c.Close()
	}
	free("nobody any more", true)
	netns.IP(t, "link add flannel.1 type vxlan id 1 dev eth0 local 192.0.2.1 dstport 8472")
	netns.IP(t, "link set flannel.1 up")
	free("a device of the kernel's", true)
	u.Addr4 = addr("192.0.2.9")
	free("an address that is not there", true)
}

// A port that a process without the right to low ones may not have is told from one that another has, in each
// family.
func TestALowPortIsNotForEveryone(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := underlay.Link{Name: "eth0", Addr4: addr("192.0.2.1"), Addr6: addr("2001:db8::1")}
	tryAll := func(want map[[2]uint16]bool) {
		t.Helper()
		for ports, refused := range want {
			if err := PortFree(k, u, ports[0], ports[1]); errors.Is(err, unix.EACCES) != refused ||
				(err != nil) != refused {
				t.Errorf("ports %d: %v", ports, err)
			}
		}
	}
	tryAll(map[[2]uint16]bool{{53}: false, {443, 444}: false, {}: false})
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		t.Fatal(err)
	}
	d[0].Effective &^= 1 << unix.CAP_NET_BIND_SERVICE // of this thread, which ends with the test
	if err := unix.Capset(&h, &d[0]); err != nil {
		t.Fatal(err)
	}
	tryAll(map[[2]uint16]bool{{53}: true, {53, 8285}: true, {8285, 53}: true, {8285, 8286}: false, {8285}: false,
		{}: false})
}
