package routing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
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
	switch l := l.(type) {
	case *netlink.Vxlan:
		return isVTEPName(a.Name) && (a.Alias == Alias || a.Alias == "")
	case *netlink.Tuntap:
		if isTAPName(a.Name) { // one that runs is path raw's, in use
			return l.Mode == netlink.TUNTAP_MODE_TAP && a.Alias == Alias && a.RawFlags&unix.IFF_RUNNING == 0
		}
		return l.Mode == netlink.TUNTAP_MODE_TUN && isDeviceName(a.Name) && a.Alias == Alias
	}
	return false
}

// IsOwnLink reports whether l is a device that weft made or took over: of the name and kind that a backend
// gives, with our mark. What only is called alike, or only has the mark, is somebody else's.
func IsOwnLink(l netlink.Link) bool {
	a := l.Attrs()
	switch l := l.(type) {
	case *netlink.Vxlan:
		return a.Alias == Alias && isVTEPName(a.Name) || isProbe(l)
	case *netlink.Tuntap:
		return a.Alias == Alias && (l.Mode == netlink.TUNTAP_MODE_TAP && isTAPName(a.Name) ||
			l.Mode == netlink.TUNTAP_MODE_TUN && isDeviceName(a.Name))
	}
	return false
}

// IsFlannelLink reports whether l has a name and a kind that flannel gives its devices.
func IsFlannelLink(l netlink.Link) bool {
	switch t := l.(type) {
	case *netlink.Vxlan:
		return isVTEPName(l.Attrs().Name)
	case *netlink.Tuntap:
		return t.Mode == netlink.TUNTAP_MODE_TUN && isDeviceName(l.Attrs().Name)
	}
	return false
}

// isTAPName reports whether name is one that tapName gives.
func isTAPName(name string) bool { return name == tapName(false) || name == tapName(true) }

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

// isVTEPName reports whether name is one that vtepName gives.
func isVTEPName(name string) bool {
	ok, _ := regexp.MatchString(`^flannel(-v6)?\.[0-9]+$`, name) // the pattern is constant
	return ok
}
