package routing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/lease"
)

// RemoveLeftovers deletes the devices that another backend, of ours or of flannel's, left on this
// host: those of flannel's names and kinds with an address in the networks of c or in a former
// one, and the idle TAPs of path raw, but those in use, which are kept. Their routes and entries go with them. It returns what was
// deleted, and does nothing the second time. Other objects of ours are swept by the backend in use.
func (k *Kernel) RemoveLeftovers(c lease.NetworkConfig, former []netip.Prefix, keep []string) (removed []string, err error) {
	ls, err := dump(func() ([]netlink.Link, error) { return k.h.LinkList() })
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	as, err := k.addrInfos()
	if err != nil {
		return nil, err
	}
	nets := slices.Concat(networks(c), former)
	var faults []error
	for _, l := range ls {
		a := l.Attrs()
		if slices.Contains(keep, a.Name) || !leftoverKind(l) {
			continue
		}
		inside := isTAPName(a.Name) || slices.ContainsFunc(as, func(i addrInfo) bool {
			return i.index == a.Index && slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(i.addr) })
		})
		if !inside {
			continue
		}
		if err := k.delLink(a.Name); err != nil {
			faults = append(faults, err)
			continue
		}
		removed = append(removed, "link "+a.Name)
	}
	return removed, errors.Join(faults...)
}

// leftoverKind reports whether l is what a backend makes: flannel's vxlan device by name, or our
// TUN or TAP by name and mark. A TUN without the mark is a running flanneld's, since flannel's
// do not outlive it.
func leftoverKind(l netlink.Link) bool {
	a := l.Attrs()
	if isTAP(l) { // one that runs is path raw's, in use
		return a.Alias == Alias && a.RawFlags&unix.IFF_RUNNING == 0
	}
	t, ok := BuiltIn().device(l)
	return ok && (a.Alias == Alias || t.Lasting && a.Alias == "")
}

// IsOwnLink reports whether l is a device that weft made or took over: of the name and kind that a backend
// gives, with our mark. What only is called alike, or only has the mark, is somebody else's.
func IsOwnLink(l netlink.Link) bool {
	if x, ok := l.(*netlink.Vxlan); ok && isProbe(x) {
		return true
	}
	return l.Attrs().Alias == Alias && (isTAP(l) || IsFlannelLink(l))
}

// IsFlannelLink reports whether l has a name and a kind that flannel gives its devices.
func IsFlannelLink(l netlink.Link) bool {
	_, ok := BuiltIn().device(l)
	return ok
}

// isTAPName reports whether name is one that tapName gives.
func isTAPName(name string) bool { return name == tapName(false) || name == tapName(true) }

// isTAP reports whether l is a TAP of path raw's by name and kind.
func isTAP(l netlink.Link) bool {
	t, ok := l.(*netlink.Tuntap)
	return ok && t.Mode == netlink.TUNTAP_MODE_TAP && isTAPName(l.Attrs().Name)
}

// isProbe reports whether l is the device of ProbeVXLAN, which is never marked: it should be gone at once.
func isProbe(l *netlink.Vxlan) bool {
	return l.Name == probeDevice && l.VxlanId == probeVNI && l.Port == probePort && l.Attrs().Flags&net.FlagUp == 0
}

// dropTAP deletes an idle TAP of path raw, if there is one of that name.
func (k *Kernel) dropTAP(name string) error {
	if l, err := k.h.LinkByName(name); err != nil || !leftoverKind(l) {
		return nil
	}
	return k.delLink(name)
}
