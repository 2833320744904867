package presence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// HostClaim keeps a second weftd off a network that a weftd serves on this host already, by holding a name
// for the network. The names are abstract sockets (unix(7)) and belong to the network namespace, as do the
// device, the routes and the port about which two daemons would compete. A lock file would not do: a weftd in
// a container sees other files. The kernel frees the names when the process ends. The zero value holds
// nothing. It is safe for concurrent use.
type HostClaim struct {
	mu    sync.Mutex
	names map[string]*net.UnixListener
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

const (
	// claimEvery is the time between tries while another holds a name: a process that ends gives its
	// own free within milliseconds.
	claimEvery = 10 * time.Millisecond
	// hiddenTries bounds the tries while the holder of a name does not show its user. A weftd hides only between
	// its bind and its listen.
	hiddenTries = 50
)

// Network claims the network, unless h holds it already. While another process with our rights holds it,
// Network waits for that to end; if ctx ends first, the error is a *HostTakenError. Anybody may take such a
// name: if its holder is not shown to be root or our user, Network returns soon with another error, and the
// caller may go on without the claim.
func (h *HostClaim) Network(ctx context.Context, k *kernel.Kernel, c lease.NetworkConfig) (err error) {
	for _, p := range c.Networks() {
		err = errors.Join(err, h.claim(ctx, k, "network/"+p.String(), "the network "+p.String()))
	}
	return err
}

// Port claims the port of a data plane, as Network does.
func (h *HostClaim) Port(ctx context.Context, k *kernel.Kernel, port uint16) error {
	return h.claim(ctx, k, portName(port), fmt.Sprint("the overlay's port ", port))
}

func (h *HostClaim) claim(ctx context.Context, k *kernel.Kernel, name, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names[name] != nil {
		return nil
	}
	at := &net.UnixAddr{Net: "unix", Name: "@weft/" + name}
	var holder *unix.Ucred // once it has been shown
	for tries := 1; ; tries++ {
		var l *net.UnixListener
		err := k.Do(func() (err error) {
			l, err = net.ListenUnix(at.Net, at)
			return err
		})
		if err == nil {
			h.hold(name, l)
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("claim %s: %w", what, err)
		}
		patient := ctx.Err() == nil
		if holder == nil || !patient {
			err = k.Do(func() error {
				shown, err := holderOf(at)
				if err == nil {
					holder = shown
				}
				return err
			})
		}
		switch {
		case holder != nil && holder.Uid != 0 && int(holder.Uid) != unix.Geteuid():
			return fmt.Errorf("claim %s: process %d of user %d has the socket %s: end it, since a second weftd is "+
				"not kept off meanwhile",
				what, holder.Pid, holder.Uid, at)
		case holder == nil && (tries >= hiddenTries || !patient):
			return fmt.Errorf("claim %s: a process that is no weftd has the socket %s (%w): end it, since a second "+
				"weftd is not kept off meanwhile",
				what, at, err)
		case !patient:
			return &HostTakenError{What: what, PID: int(holder.Pid)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(claimEvery):
		}
	}
}

// hold has h hold the name by l. Connections are accepted and closed: those that wait would fill the
// listener's queue, and a full one does not show whose it is.
func (h *HostClaim) hold(name string, l *net.UnixListener) {
	if h.names == nil {
		h.names = map[string]*net.UnixListener{}
	}
	h.names[name] = l
	go func() { // ends with h.Close
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // nothing was written
		}
	}()
}

// HasPort reports whether h holds the port already.
func (h *HostClaim) HasPort(port uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names[portName(port)] != nil
}

func portName(port uint16) string { return fmt.Sprint("port/", port) }

// holderOf asks the kernel who listens by the name.
func holderOf(at *net.UnixAddr) (*unix.Ucred, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: at.Name}); err != nil {
		return nil, err
	}
	return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
}

// Close releases the names.
func (h *HostClaim) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, l := range h.names {
		errs = append(errs, l.Close())
	}
	h.names = nil
	return errors.Join(errs...)
}

// PortFree reports whether a backend could listen at the underlay's addresses, before anything is written: on
// port, and over IPv6 on port6 unless that is 0. The error wraps unix.EADDRINUSE if a process has the port,
// and unix.EACCES if ours may not have it; an address that is not there, and a device of the kernel's that
// the data plane removes, are no fault yet.
func PortFree(k *kernel.Kernel, u underlay.Link, port, port6 uint16) error {
	for _, a := range u.Local() {
		at := netip.AddrPortFrom(a, port)
		if a.Is6() && port6 != 0 {
			at = netip.AddrPortFrom(a, port6)
		}
		if at.Port() == 0 {
			continue
		}
		err := k.Do(func() error { return tryPort(at) })
		switch {
		case errors.Is(err, unix.EADDRINUSE) && !deviceHasPort(k, at.Port()):
			return fmt.Errorf("port %d at %s: %w: is flanneld or another weftd running here?", at.Port(), a, err)
		case errors.Is(err, unix.EACCES):
			return fmt.Errorf("port %d at %s: %w", at.Port(), a, kernel.LowPort(err))
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
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	return c.Close()
}
