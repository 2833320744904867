package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// ErrNoWireGuard says that this kernel makes no WireGuard devices: it was built without, or the module
// wireguard is not installed. It is the kernel's own answer to a request for one.
var ErrNoWireGuard = errors.New("this kernel has no WireGuard (Linux has it from 5.6 on, as the module " +
	"wireguard)")

// wireGuardKind is the kernel's name of the driver.
const wireGuardKind = "wireguard"

// AddWireGuard makes a device without a key. It is up, since only then a handshake begins when it gets its
// peers. The error wraps ErrNoWireGuard if the kernel cannot.
func (k *Kernel) AddWireGuard(name string) error {
	a := netlink.NewLinkAttrs()
	a.Name = name
	l := &netlink.GenericLink{LinkAttrs: a, LinkType: wireGuardKind}
	err := k.addLink(l, ErrNoWireGuard)
	if err == nil {
		err = k.h.LinkSetUp(l)
	}
	return Wrap("add link "+name, err)
}

// ProbeWireGuard asks the kernel whether it can make WireGuard devices, by making one for a moment. The error
// wraps ErrNoWireGuard if it cannot.
func (k *Kernel) ProbeWireGuard() error {
	kind := wireGuardKind
	if k.WireGuardKind != "" {
		kind = k.WireGuardKind
	}
	a := netlink.NewLinkAttrs()
	a.Name = probeDevice
	return k.probe(&netlink.GenericLink{LinkAttrs: a, LinkType: kind}, "WireGuard", ErrNoWireGuard)
}

// probe makes the link probeDevice for a moment; what is its kind's name for people. The error wraps missing
// if the kernel has none such.
func (k *Kernel) probe(l netlink.Link, what string, missing error) error {
	err := k.addLink(l, missing)
	if errors.Is(err, unix.EEXIST) { // of a process that was killed meanwhile, or somebody else's
		if there, bad := k.h.LinkByName(probeDevice); bad == nil && !IsProbe(there) {
			return fmt.Errorf("probe for %s: link %s is another program's: rename it", what, probeDevice)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("probe for %s: %w", what, err)
	}
	return k.DelLink(probeDevice)
}

// Aside returns a probe in a network namespace that is made for it, so that the host's is not touched.
func Aside(probe func(*Kernel) error) func() error {
	return func() error {
		return ownthread.InNew(func() error {
			k, err := OpenKernel()
			if err != nil {
				return err
			}
			return errors.Join(probe(k), k.Close())
		})
	}
}
