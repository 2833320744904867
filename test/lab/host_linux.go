package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// Host is a machine of the lab: a node, a pod, the store's or the wire.
type Host struct {
	// Name is node1, node1-pod1, store or wire.
	Name string
	// NS is the host's namespace, owned by the lab.
	NS *netns.Namespace
}

// Do runs fn on the thread of the host's namespace; see netns.Namespace.Do.
func (h *Host) Do(fn func() error) error { return h.NS.Do(fn) }

// Command runs a program in the host and returns its standard output. The error has
// the last part of its standard error.
func (h *Host) Command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, fault limited
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := h.NS.Run(cmd); err != nil {
		return out.b, fmt.Errorf("%s: %v: %w: %s", h.Name, cmd.Args, err, fault.b)
	}
	return out.b, nil
}

// limited keeps the last MiB of what is written to it.
type limited struct{ b []byte }

func (l *limited) Write(p []byte) (int, error) {
	const most = 1 << 20
	l.b = append(l.b, p...)
	if len(l.b) > most {
		l.b = l.b[len(l.b)-most:]
	}
	return len(p), nil
}

// HTTPClient makes requests from inside the host. Addresses must be literals.
func (h *Host) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return h.NS.Dial(ctx, network, addr)
		},
		DisableKeepAlives: true, // connections must not outlive the namespace
	}}
}

// get fetches url and returns the status and up to 64 KiB of the body.
func (h *Host) get(ctx context.Context, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := h.HTTPClient().Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, body, err
}

// link finds a device of the host.
func (h *Host) link(name string) (netlink.Link, error) {
	l, err := h.NS.Netlink().LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: find %s: %w", h.Name, name, err)
	}
	return l, nil
}

// withoutCarrier returns the name of a veth or bridge of the host that is set up but not yet running, or "".
func (h *Host) withoutCarrier() (string, error) {
	links, err := h.NS.Netlink().LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return "some device", nil // the list changed while it was read: look again
	}
	if err != nil {
		return "", fmt.Errorf("%s: list devices: %w", h.Name, err)
	}
	for _, l := range links {
		a := l.Attrs()
		ours := l.Type() == "veth" || l.Type() == "bridge"
		if ours && a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperUp {
			return a.Name, nil
		}
	}
	return "", nil
}

// configure sets a device up and gives it its addresses. IPv6 addresses can be used at once, since no
// duplicates are looked for: a lab has none.
func (h *Host) configure(name string, addrs ...netip.Prefix) error {
	l, err := h.link(name)
	if err != nil {
		return err
	}
	nl := h.NS.Netlink()
	if err := nl.LinkSetUp(l); err != nil {
		return fmt.Errorf("%s: set %s up: %w", h.Name, name, err)
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := nl.AddrReplace(l, addr); err != nil {
			return fmt.Errorf("%s: add %s to %s: %w", h.Name, a, name, err)
		}
	}
	return nil
}

// route adds or replaces a route. An invalid via means that dst is on the link.
func (h *Host) route(dst netip.Prefix, via netip.Addr, dev string, flags int) error {
	l, err := h.link(dev)
	if err != nil {
		return err
	}
	r := &netlink.Route{Dst: ipNet(dst), LinkIndex: l.Attrs().Index, Flags: flags}
	if via.IsValid() {
		r.Gw = via.AsSlice()
	} else {
		r.Scope = netlink.SCOPE_LINK
	}
	if err := h.NS.Netlink().RouteReplace(r); err != nil {
		return fmt.Errorf("%s: route %s via %s dev %s: %w", h.Name, dst, via, dev, err)
	}
	return nil
}

// sysctls sets each key, also when another could not be set.
func (h *Host) sysctls(values map[string]string) error {
	var faults []error
	for key, value := range values {
		faults = append(faults, h.NS.Sysctl(key, value))
	}
	return errors.Join(faults...)
}

// connect makes a veth pair between two hosts.
func connect(a *Host, aName string, b *Host, bName string, mtu int) error {
	err := a.NS.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aName, MTU: mtu},
		PeerName:  bName, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.NS.FD()),
	})
	if err != nil {
		return fmt.Errorf("connect %s %s with %s %s: %w", a.Name, aName, b.Name, bName, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
