package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPIPName is the name of the kernel's ipip device, which is flannel's.
const IPIPName = "flannel.ipip"

// ipipKind is the kernel's name of the driver.
const ipipKind = "ipip"

// ErrNoIPIP says that this kernel makes no ipip devices: it was built without, or the module ipip is not installed. It is the
// kernel's own answer to a request for one.
var ErrNoIPIP = errors.New("this kernel has no ipip (the module ipip, as in linux-modules-extra, would bring it)")

// ErrNotIPIP is for a link that has the name of our device and is another kind.
var ErrNotIPIP = errors.New("it is no ipip device")

// IPIP has the attributes of an ipip device that it cannot change.
type IPIP struct {
	Name, Alias string
	Index       int
	Local       netip.Addr
	// Other lists what differs from a device that reaches any peer with the kernel's defaults; "" if nothing does.
	Other string
}

// IPIP looks up a device. The error wraps ErrNoLink or ErrNotIPIP.
func (k *Kernel) IPIP(name string) (IPIP, error) {
	l, err := k.h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return IPIP{}, fmt.Errorf("link %s: %w", name, ErrNoLink)
	}
	if err != nil {
		return IPIP{}, fmt.Errorf("link %s: %w", name, err)
	}
	t, ok := l.(*netlink.Iptun)
	if !ok {
		return IPIP{}, fmt.Errorf("link %s is of type %s: %w: ip link del %s if nothing uses it", name, l.Type(), ErrNotIPIP, name)
	}
	return fromIPIP(t), nil
}

func fromIPIP(t *netlink.Iptun) IPIP {
	d := IPIP{Name: t.Name, Alias: t.Alias, Index: t.Index, Local: fromIP(t.Local)}
	var other []string
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"remote", fromIP(t.Remote).IsValid() && !fromIP(t.Remote).IsUnspecified()},
		{"ttl", t.Ttl != 0}, {"tos", t.Tos != 0}, {"dev", t.Link != 0}, {"external", t.FlowBased}, {"encap", t.EncapType != 0},
	} {
		if o.set {
			other = append(other, o.name)
		}
	}
	if len(other) > 0 {
		d.Other = "it has " + strings.Join(other, ", ")
	}
	return d
}

// AddIPIP makes a device, down, which sends from local to whatever a route says. The error wraps ErrNoIPIP if the kernel cannot.
func (k *Kernel) AddIPIP(name string, local netip.Addr) error {
	a := netlink.NewLinkAttrs()
	a.Name = name
	err := k.h.LinkAdd(&netlink.Iptun{LinkAttrs: a, Local: net.IP(local.AsSlice())})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = fmt.Errorf("%w: %w", ErrNoIPIP, err)
	case errors.Is(err, unix.EEXIST):
		err = fmt.Errorf("%w: another ipip device sends from %v to any address: ip -d link show type ipip lists it", err, local)
	}
	return Wrap("add link "+name, err)
}

// ProbeIPIP asks the kernel whether it can make ipip devices, by making one for a moment. The error wraps ErrNoIPIP if it cannot. Loading
// the module, which that may do, makes a device tunl0 in each namespace.
func (k *Kernel) ProbeIPIP() error { return k.probeKind("ipip", ipipKind, ErrNoIPIP) }

// ProbeIPIPAside runs Kernel.ProbeIPIP in a network namespace of its own, so that the host's is not touched.
func ProbeIPIPAside() error { return aside("ipip", (*Kernel).ProbeIPIP) }
