package presence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// HostClaim keeps a second weftd off a network that a weftd serves on this host already, by holding a
// name for the network. The names are abstract sockets (unix(7)) and belong to the network namespace, as
// do the device, the routes and the port about which two daemons would compete, whatever files each of
// them sees. The kernel frees them when the process ends. The zero value holds nothing. It is safe for
// concurrent use.
type HostClaim struct {
	mu  sync.Mutex
	fds map[string]int
}

// HostTakenError says that another process serves the network here.
type HostTakenError struct {
	What string // what it holds
	PID  int    // 0 if it is not visible from here
}

func (e *HostTakenError) Error() string {
	who := "another weftd"
	if e.PID != 0 {
		who = fmt.Sprintf("another weftd (pid %d)", e.PID)
	}
	return fmt.Sprintf("%s serves %s on this host: stop it; nothing was changed", who, e.What)
}

// claimEvery is the time between tries while another holds a name: a process that ends gives its
// own free within milliseconds.
const claimEvery = 10 * time.Millisecond

// Network claims the network, unless h holds it already. While another process holds it, Network waits for
// that to end; if ctx ends first, the error is a *HostTakenError. A process that does not have our rights
// does not count, since anybody may take such a name.
func (h *HostClaim) Network(ctx context.Context, k *kernel.Kernel, c lease.NetworkConfig) error {
	for _, p := range c.Networks() {
		if err := h.claim(ctx, k, "network/"+p.String(), "the network "+p.String()); err != nil {
			return err
		}
	}
	return nil
}

// Port claims the port of a data plane, as Network does.
func (h *HostClaim) Port(ctx context.Context, k *kernel.Kernel, port uint16) error {
	return h.claim(ctx, k, portName(port), fmt.Sprint("the overlay's port ", port))
}

func (h *HostClaim) claim(ctx context.Context, k *kernel.Kernel, name, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, have := h.fds[name]; have {
		return nil
	}
	at := &unix.SockaddrUnix{Name: "@weft/" + name}
	for {
		var fd int
		err := k.Do(func() (err error) {
			fd, err = listenUnix(at)
			return err
		})
		if err == nil {
			if h.fds == nil {
				h.fds = map[string]int{}
			}
			h.fds[name] = fd
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("claim %s: %w", what, err)
		}
		var holder *unix.Ucred
		err = k.Do(func() (err error) {
			holder, err = holderOf(at)
			return err
		})
		if err == nil && holder.Uid != 0 && int(holder.Uid) != unix.Geteuid() {
			return nil
		}
		select {
		case <-ctx.Done():
			taken := &HostTakenError{What: what}
			if err == nil {
				taken.PID = int(holder.Pid)
			}
			return taken
		case <-time.After(claimEvery):
		}
	}
}

// Claims returns duplicates of what h holds, by name, for a process that is to take h's place: the names stay taken until the
// last duplicate is closed. The descriptors are the caller's.
func (h *HostClaim) Claims() (map[string]int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]int, len(h.fds))
	for name, fd := range h.fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			for _, fd := range out {
				err = errors.Join(err, unix.Close(fd))
			}
			return nil, fmt.Errorf("hand over the claim of %s: %w", name, err)
		}
		out[name] = dup
	}
	return out, nil
}

// Inherit has h hold what another process's Claims returned as name. It takes fd over.
func (h *HostClaim) Inherit(name string, fd int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, have := h.fds[name]; have {
		return unix.Close(fd)
	}
	if h.fds == nil {
		h.fds = map[string]int{}
	}
	h.fds[name] = fd
	return nil
}

// HasPort reports whether h holds the port already.
func (h *HostClaim) HasPort(port uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, have := h.fds[portName(port)]
	return have
}

func portName(port uint16) string { return fmt.Sprint("port/", port) }

// listenUnix returns a socket that holds the name. Nobody accepts on it: who connects learns who listens.
func listenUnix(at *unix.SockaddrUnix) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, at); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// holderOf asks who holds the name.
func holderOf(at *unix.SockaddrUnix) (*unix.Ucred, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Connect(fd, at); err != nil {
		return nil, err
	}
	return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
}

// Close releases the names.
func (h *HostClaim) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, fd := range h.fds {
		errs = append(errs, unix.Close(fd))
	}
	h.fds = nil
	return errors.Join(errs...)
}

// PortFree reports whether a data plane could listen on the port at the underlay's addresses, before anything is
// written. The error wraps unix.EADDRINUSE if a process has it; an address that is not there, and a device
// of the kernel's that the data plane removes, are no fault yet.
func PortFree(k *kernel.Kernel, u underlay.Link, port uint16) error {
	if port == 0 {
		return nil
	}
	for _, a := range u.Local() {
		err := k.Do(func() error { return tryPort(netip.AddrPortFrom(a, port)) })
		if errors.Is(err, unix.EADDRINUSE) && !deviceHasPort(k, port) {
			return fmt.Errorf("port %d at %s: %w: is flanneld or another weftd running here?", port, a, err)
		}
	}
	return nil
}

// deviceHasPort reports whether a vxlan device of the kernel's has the port.
func deviceHasPort(k *kernel.Kernel, port uint16) bool {
	vs, err := k.VTEPsOnPort(port)
	return err == nil && len(vs) > 0
}

func tryPort(at netip.AddrPort) error {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(at.Port()), Addr: v4of(at.Addr())})
	if at.Addr().Is6() {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Bind(fd, to), unix.Close(fd))
}

func v4of(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}
