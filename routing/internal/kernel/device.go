package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Device is a link: as the kernel shows it, or as it should be. It is comparable.
type Device struct {
	Name, Alias string
	// Kind is the driver's name, as in ip -d link: vlan, bond, bridge, veth; "device" for hardware, and what has
	// none. TUNs and TAPs have one driver, and are "tun" and "tap", or "tuntap" where an old kernel does not say
	// which. Of a wanted device it is KindVXLAN or KindIPIP, which we make, or "" for one that others make.
	Kind       string
	MTU        int // bytes
	TxQueueLen int // packets; of a wanted device that we make the kernel's default stays
	Up         bool
	MAC        MAC // of Ethernet, and of a wanted vxlan device

	// These are the kernel's, and are not compared. Index is the number; 0 if there is none yet. Parent is the
	// link that it stands on, Master the one that it is a port of, by number; 0 for none. A Parent in another
	// namespace is not one. Running says that somebody has a TUN or TAP open.
	Index, Parent, Master int
	Running               bool

	// A tunnel cannot change these. Local is the outer source address. The rest is of vxlan: Under is the number
	// of the underlay link.
	VNI           uint32
	Port          uint16
	Under         int
	Local         netip.Addr
	GBP, Learning bool
	// Other lists attributes that we leave at the kernel's defaults and that differ; "" if none does.
	Other string
	// Loose says that peers may be reached by a plain route and answer by the tunnel. It is not compared: the
	// device's settings are looked at each time.
	Loose bool
}

// The kinds of devices that we make, of a TAP and of a TUN.
const (
	KindVXLAN     = "vxlan"
	KindIPIP      = "ipip"
	KindWireGuard = "wireguard"
	KindTUN       = "tun"
	kindTAP       = "tap"
)

// made reports whether a wanted device is one that we make.
func (d Device) made() bool { return d.Kind == KindVXLAN || d.Kind == KindIPIP }

// DeviceChange is what to do about one device that is ours.
type DeviceChange struct {
	Want Device
	// Create says that there is none, Recreate why the one that there is has to go first.
	Create   bool
	Recreate string
	// Set are the attributes to change: "mac", "mtu", "txqueuelen", "alias", "up".
	Set []string
}

// Stranger is a device of a name that we want, and why it is not ours to take.
type Stranger struct{ Name, Why string }

// planDevices says what to do about the devices themselves, and what remains to be compared of what is on
// them: with a device that has to go, all that is on it goes too, and with another MAC the kernel forgets its
// neighbours. On a stranger's nothing is wanted, and nothing is ours.
func planDevices(c *Changes, have, want State, own Ownership) (State, State, Ownership) {
	for _, w := range want.Devices {
		i := slices.IndexFunc(have.Devices, func(h Device) bool { return h.Name == w.Name })
		if i < 0 {
			if w.made() { // others make the rest
				c.Devices = append(c.Devices, DeviceChange{Want: w, Create: true})
			}
			continue
		}
		h := have.Devices[i]
		if h.Alias == Alias && !w.made() {
			w.TxQueueLen = max(w.TxQueueLen, h.TxQueueLen) // the operator wants a longer queue
		}
		if why := own.strange(h, w, have.Addrs); why != "" {
			c.Strangers = append(c.Strangers, Stranger{w.Name, why})
			want, own = want.Without([]string{w.Name}), own.without(w.Name)
			continue
		}
		change := planDevice(h, w)
		c.Devices = append(c.Devices, change)
		switch {
		case change.Recreate != "":
			have = have.Without([]string{w.Name})
		case slices.Contains(change.Set, "mac"):
			have.Neighs = slices.DeleteFunc(slices.Clone(have.Neighs), func(n Neigh) bool { return n.Link == w.Name })
		}
		// A TUN without an address of the overlay is new: we have just made it.
		if change.Recreate == "" && h.Alias == "" && w.Alias != "" && (w.made() ||
			slices.ContainsFunc(have.Addrs, func(a Addr) bool {
				return a.Link == w.Name && own.contains(a.Prefix.Addr())
			})) {
			c.Adopted = append(c.Adopted, "link "+w.Name)
		}
	}
	return have, want, own
}

// planDevice compares a device in full.
func planDevice(have, want Device) DeviceChange {
	p := DeviceChange{Want: want}
	if want.made() {
		var differ []string
		check := func(what string, have, want any) {
			if have != want {
				differ = append(differ, fmt.Sprintf("%s %v, want %v", what, have, want))
			}
		}
		check("VNI", have.VNI, want.VNI)
		check("port", have.Port, want.Port)
		check("underlay link", have.Under, want.Under)
		check("local address", have.Local, want.Local)
		check("GBP", have.GBP, want.GBP)
		check("learning", have.Learning, want.Learning)
		if have.Other != "" {
			differ = append(differ, have.Other)
		}
		if p.Recreate = strings.Join(differ, "; "); p.Recreate != "" {
			return p
		}
	}
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"mac", want.MAC != MAC{} && have.MAC != want.MAC}, {"mtu", have.MTU != want.MTU},
		{"txqueuelen", want.TxQueueLen > 0 && have.TxQueueLen != want.TxQueueLen},
		{"alias", have.Alias != want.Alias}, {"up", want.Up && !have.Up},
	} {
		if s.differs {
			p.Set = append(p.Set, s.name)
		}
	}
	return p
}

// Len returns about how many kernel calls the change makes.
func (p DeviceChange) Len() int {
	if p.Create || p.Recreate != "" {
		return 1
	}
	return len(p.Set)
}

// strange says why a device is not ours to take, of whose addresses all are among addrs; "" if it is. One
// that we brought up stays ours, whatever somebody does to it.
func (o Ownership) strange(d, want Device, addrs []Addr) string {
	switch {
	case !want.made():
		return ""
	case d.Kind != want.Kind:
		return fmt.Sprintf("link %s is of type %s, and not of type %s: ip link del %s if nothing uses it", d.Name,
			d.Kind, want.Kind, d.Name)
	}
	if o.Made[d.Name] == d.Index && d.Index != 0 {
		return ""
	}
	var on []netip.Prefix
	for _, a := range addrs {
		if a.Link == d.Name {
			on = append(on, a.Prefix)
		}
	}
	return Strange(d, on, o.Networks)
}

// without leaves out a device, and the routes by it.
func (o Ownership) without(link string) Ownership {
	o.Links = slices.DeleteFunc(slices.Clone(o.Links), func(l string) bool { return l == link })
	if adopts := o.Adopts; adopts != nil {
		o.Adopts = func(r Route) bool { return r.Link != link && adopts(r) }
	}
	return o
}

// Strange says why a device of the name that we want is not ours to take, and what to do;
// "" if it is. Ours and flannel's have an address in the network, or none yet. It is pure.
func Strange(d Device, addrs []netip.Prefix, networks []netip.Prefix) string {
	other := ""
	if d.Kind == KindVXLAN {
		other = "choose another VNI, or "
	}
	if d.Alias != "" && d.Alias != Alias {
		return fmt.Sprintf("link %s has the alias %q, so it is another program's: %sip link del %s", d.Name,
			d.Alias, other, d.Name)
	}
	var others []string
	for _, a := range addrs {
		if a.Addr().IsLinkLocalUnicast() {
			continue
		}
		if slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a.Addr()) }) {
			return ""
		}
		others = append(others, a.String())
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("link %s has the address %s of another network: %sip link del %s if nothing uses it",
		d.Name, strings.Join(others, ", "), other, d.Name)
}

// ChecksumFault reports whether a kernel of that release may get the outer UDP checksum wrong when
// it translates the address of a packet that left the overlay's device with its inner checksum
// still to be completed (fixed by ea64d8d6c675, "netfilter: nat: never update the UDP checksum when
// it's 0", Linux 5.7). Distributions have backported the fix, which the release does not show.
// An unreadable release counts as new. It is pure.
func ChecksumFault(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major < 5 || major == 5 && minor < 7
}

// String describes the device for the log.
func (d Device) String() string {
	switch d.Kind {
	case KindVXLAN:
		return fmt.Sprintf("%s id %d local %v dstport %d", d.Name, d.VNI, d.Local, d.Port)
	case KindIPIP:
		return fmt.Sprintf("%s local %v", d.Name, d.Local)
	}
	return d.Name
}
