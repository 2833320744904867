package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Conf6 has a directory of settings for each link, as Conf4.
const Conf6 = "/proc/sys/net/ipv6/conf"

// Bridged is a link on which the kernel takes all of a prefix to be, as a bridge of pods that has their
// gateway's address.
type Bridged struct {
	Link   Device
	Prefix netip.Prefix // masked
}

// Bridged lists the links of others that have an address with a prefix inside one of subnets, in a steady
// order.
func (k *Kernel) Bridged(subnets []netip.Prefix) ([]Bridged, error) {
	as, err := k.addrs()
	if err != nil {
		return nil, err
	}
	var out []Bridged
	var index []int
	for _, a := range as {
		if a.IPNet == nil {
			continue
		}
		p := fromIPNet(a.IPNet)
		in := slices.ContainsFunc(subnets, func(s netip.Prefix) bool {
			return s.IsValid() && p.Bits() >= s.Bits() && s.Contains(p.Addr())
		})
		if in && !p.IsSingleIP() {
			out, index = append(out, Bridged{Prefix: p.Masked()}), append(index, a.LinkIndex)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	ds, err := k.Devices()
	if err != nil {
		return nil, err
	}
	for i := range out {
		if j := slices.IndexFunc(ds, func(d Device) bool { return d.Index == index[i] }); j >= 0 &&
			ds[j].Alias != Alias {
			out[i].Link = ds[j]
		}
	}
	out = slices.DeleteFunc(out, func(b Bridged) bool { return b.Link.Index == 0 }) // ours, or gone meanwhile
	slices.SortFunc(out, func(a, b Bridged) int {
		return cmp.Or(a.Link.Index-b.Link.Index, a.Prefix.Compare(b.Prefix))
	})
	return slices.Compact(out), nil
}

// Proxies lists the addresses for which the host answers on a link, in both families.
func (k *Kernel) Proxies(link int) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		ns, err := k.listNeighs(family, link, unix.NTF_PROXY)
		if err != nil {
			return nil, err
		}
		for _, n := range ns {
			out = append(out, fromIP(n.IP))
		}
	}
	return out, nil
}

// AddProxy makes the host answer on the link for a, to which it has a route by another link.
func (k *Kernel) AddProxy(link int, a netip.Addr) error { return k.changeProxy(link, a, k.h.NeighSet) }

// DelProxy undoes AddProxy.
func (k *Kernel) DelProxy(link int, a netip.Addr) error {
	return gone(k.changeProxy(link, a, k.h.NeighDel))
}

func (k *Kernel) changeProxy(link int, a netip.Addr, change func(*netlink.Neigh) error) error {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	return change(&netlink.Neigh{LinkIndex: link, Family: family, Flags: unix.NTF_PROXY, IP: a.AsSlice()})
}

// AnswerForOthers has a link's settings let proxy entries work, and at once: without it the kernel lets a
// neighbour wait for up to 0.8 s. In IPv4 an entry is all that it takes; in IPv6 they are looked at only
// where that is switched on, so that only its error counts.
func (k *Kernel) AnswerForOthers(link string, six bool) error {
	return k.Do(func() error {
		_ = WriteSetting(filepath.Join("/proc/sys/net/ipv4/neigh", link), "proxy_delay", "0")
		if !six {
			return nil
		}
		_ = WriteSetting(filepath.Join("/proc/sys/net/ipv6/neigh", link), "proxy_delay", "0")
		err := WriteSetting(filepath.Join(Conf6, link), proxyNDP, "1")
		var s *settingError
		if errors.As(err, &s) {
			return fmt.Errorf("net.ipv6.conf.%s.%s is not 1, and cannot be set from here: %w",
				strings.ReplaceAll(link, ".", "/"), proxyNDP, s.err)
		}
		return err
	})
}

const proxyNDP = "proxy_ndp"
