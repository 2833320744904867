package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TAPName names the TAP through which superpackets of an outer family leave whole (tunnel GSO).
func TAPName(six bool) string {
	if six {
		return "weft-tx6"
	}
	return "weft-tx4"
}

// tapMTU is the largest that an Ethernet device takes: 65535 less the Ethernet header, in bytes.
const tapMTU = 65521

// Hairpin makes what is written to the TAP leave by the link whose index is to: the TAP's ingress redirects
// every frame to the link's egress. If was is not 0, the TAP has to be the one with that index. index is the
// TAP's. An entry that is in place stays as it is.
//
// The error says which piece of the kernel is missing. It wraps ErrNoLink if there is no such TAP. Hairpin
// needs CAP_NET_ADMIN. The TAP and its filters stay when this process ends; then nobody writes to it.
func (k *Kernel) Hairpin(tap string, was, to int) (index int, err error) {
	d, err := k.Device(tap)
	if err != nil {
		return 0, err
	}
	if was != 0 && d.Index != was {
		return 0, fmt.Errorf("link %s is another, number %d: %w", tap, d.Index, ErrNoLink)
	}
	return d.Index, k.bend(d, to)
}

func (k *Kernel) bend(d Device, to int) error {
	tap := d.Name
	l, err := k.h.LinkByIndex(d.Index)
	if err != nil {
		return err
	}
	if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := k.h.LinkSetARPOff(l); err != nil {
			return fmt.Errorf("%s arp off: %w", tap, err)
		}
	}
	// Without it the kernel would write router solicitations there, which nobody reads.
	_ = k.SetIPv6(tap, false)
	want := Device{Name: tap, Alias: Alias, MTU: tapMTU, Up: true}
	if _, err := k.SetDevice(want, planDevice(d, want).Set); err != nil {
		return err
	}
	if k.redirects(l, to) {
		return nil
	}
	return k.redirect(l, to)
}

// redirect replaces whatever filters the TAP's ingress.
func (k *Kernel) redirect(l netlink.Link, to int) error {
	tap, qdisc := l.Attrs().Name, clsact(l)
	if err := k.h.QdiscDel(qdisc); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s: remove clsact: %w", tap, err)
	}
	if err := k.h.QdiscAdd(qdisc); err != nil {
		return fmt.Errorf("%s: clsact (CONFIG_NET_SCH_INGRESS): %w", tap, err)
	}
	// One key with an empty mask matches everything. cls_matchall is missing from more kernels.
	filter := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Priority: 1, Protocol: unix.ETH_P_ALL},
		Sel:     &nl.TcU32Sel{Nkeys: 1, Flags: nl.TC_U32_TERMINAL, Keys: []nl.TcU32Key{{}}},
		Actions: []netlink.Action{netlink.NewMirredAction(to)},
	}
	if err := k.h.FilterAdd(filter); err != nil {
		return fmt.Errorf("%s: cls_u32 with act_mirred (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED): %w", tap, err)
	}
	if !k.redirects(l, to) {
		return fmt.Errorf("%s: the kernel took the redirect, and does not show it", tap)
	}
	return nil
}

func clsact(l netlink.Link) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// redirects reports whether the ingress of l has one filter, which redirects all to that link.
func (k *Kernel) redirects(l netlink.Link, to int) bool {
	filters, err := dump(func() ([]netlink.Filter, error) {
		return k.h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return false
	}
	rules := 0
	for _, f := range filters {
		u, ok := f.(*netlink.U32)
		switch {
		case !ok:
			return false // another's, which may come first
		case u.Sel == nil:
			continue // the hash table that the filter is in
		case len(u.Sel.Keys) != 1 || u.Sel.Keys[0].Mask != 0 || len(u.Actions) != 1:
			return false
		}
		m, ok := u.Actions[0].(*netlink.MirredAction)
		if !ok || m.MirredAction != netlink.TCA_EGRESS_REDIR || m.Ifindex != to {
			return false
		}
		rules++
	}
	return rules == 1
}

// IsTAP reports whether d is a TAP of path raw, by its name and kind.
func (d Device) IsTAP() bool {
	return d.Kind == kindTAP && (d.Name == TAPName(false) || d.Name == TAPName(true))
}

// IsIdleTAP reports whether d is a TAP of path raw that no process has open: one that is running is in use.
func (d Device) IsIdleTAP() bool { return d.IsTAP() && d.Alias == Alias && !d.Running }

// DropTAP deletes an idle TAP of path raw, if there is one of that name.
func (k *Kernel) DropTAP(name string) error {
	if d, err := k.Device(name); err != nil || !d.IsIdleTAP() {
		return nil
	}
	return k.DelLink(name)
}
