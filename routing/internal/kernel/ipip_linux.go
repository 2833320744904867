package kernel

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// IPIPName is the name of the kernel's ipip device, which is flannel's.
const IPIPName = "flannel.ipip"

// ErrNoIPIP says that this kernel makes no ipip devices: it was built without, or the module ipip is not
// installed. It is the kernel's own answer to a request for one.
var ErrNoIPIP = errors.New("this kernel has no ipip (the module ipip, as in linux-modules-extra, would " +
	"bring it)")

// ProbeIPIP asks the kernel whether it can make ipip devices, by making one for a moment. The error wraps
// ErrNoIPIP if it cannot. Loading the module, which that may do, makes a device tunl0 in each namespace.
func (k *Kernel) ProbeIPIP() error {
	a := netlink.NewLinkAttrs()
	a.Name = probeDevice
	return k.probe(&netlink.GenericLink{LinkAttrs: a, LinkType: KindIPIP}, KindIPIP, ErrNoIPIP)
}
