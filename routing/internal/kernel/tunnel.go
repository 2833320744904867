package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Tunnel has the attributes that we keep of a device by which the kernel tunnels. It is comparable.
type Tunnel struct {
	Name string
	// Kind is the driver's name, KindVXLAN or KindIPIP; of a device of somebody's it may be another.
	Kind  string
	Alias string
	MAC   MAC // of vxlan
	MTU   int // bytes
	Up    bool
	// Index is the link's number; 0 if there is none yet. It is not compared.
	Index int

	// A device cannot change these. Local is the outer source address. The rest is of vxlan: Under is the number
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

// The kinds of Tunnel.
const (
	KindVXLAN = "vxlan"
	KindIPIP  = "ipip"
)

// TunnelChange is what to do about one device that is ours.
type TunnelChange struct {
	Want Tunnel
	// Create says that there is none, Recreate why the one that there is has to go first.
	Create   bool
	Recreate string
	// Set are the attributes to change: "mac", "mtu", "alias", "up".
	Set []string
}

// Stranger is a device of a name that we want, and why it is not ours to take.
type Stranger struct{ Name, Why string }

// planTunnels says what to do about the devices themselves, and what remains to be compared of what is on
// them: with a device that has to go, all that is on it goes too, and with another MAC the kernel forgets its
// neighbours. On a stranger's nothing is wanted, and nothing is ours.
func planTunnels(c *Changes, have, want State, own Ownership) (State, State, Ownership) {
	for _, w := range want.Tunnels {
		i := slices.IndexFunc(have.Tunnels, func(h Tunnel) bool { return h.Name == w.Name })
		if i < 0 {
			c.Tunnels = append(c.Tunnels, TunnelChange{Want: w, Create: true})
			continue
		}
		h := have.Tunnels[i]
		if why := own.strange(h, w.Kind, have.Addrs); why != "" {
			c.Strangers = append(c.Strangers, Stranger{w.Name, why})
			want, own = want.Without([]string{w.Name}), own.without(w.Name)
			continue
		}
		change := planTunnel(h, w)
		c.Tunnels = append(c.Tunnels, change)
		switch {
		case change.Recreate != "":
			have = have.Without([]string{w.Name})
		case slices.Contains(change.Set, "mac"):
			have.Neighs = slices.DeleteFunc(slices.Clone(have.Neighs), func(n Neigh) bool { return n.Link == w.Name })
		}
		if change.Recreate == "" && h.Alias == "" && w.Alias != "" {
			c.Adopted = append(c.Adopted, "link "+w.Name)
		}
	}
	return have, want, own
}

// planTunnel compares a device in full.
func planTunnel(have, want Tunnel) TunnelChange {
	p := TunnelChange{Want: want}
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
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"mac", have.MAC != want.MAC}, {"mtu", have.MTU != want.MTU},
		{"alias", have.Alias != want.Alias}, {"up", have.Up != want.Up},
	} {
		if s.differs {
			p.Set = append(p.Set, s.name)
		}
	}
	return p
}

// Len returns about how many kernel calls the change makes.
func (p TunnelChange) Len() int {
	if p.Create || p.Recreate != "" {
		return 1
	}
	return len(p.Set)
}

// strange says why a device is not ours to take, of whose addresses all are among addrs; "" if it is. One
// that we brought up stays ours, whatever somebody does to it.
func (o Ownership) strange(d Tunnel, kind string, addrs []Addr) string {
	if d.Kind != kind {
		return fmt.Sprintf("link %s is of type %s, and not of type %s: ip link del %s if nothing uses it", d.Name,
			d.Kind, kind, d.Name)
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
	return TunnelStrange(d, on, o.Networks)
}

// without leaves out a device, and the routes by it.
func (o Ownership) without(link string) Ownership {
	o.Links = slices.DeleteFunc(slices.Clone(o.Links), func(l string) bool { return l == link })
	if adopts := o.Adopts; adopts != nil {
		o.Adopts = func(r Route) bool { return r.Link != link && adopts(r) }
	}
	return o
}

// TunnelStrange says why a device of the name that we want is not ours to take, and what to do;
// "" if it is. Ours and flannel's have an address in the network, or none yet. It is pure.
func TunnelStrange(d Tunnel, addrs []netip.Prefix, networks []netip.Prefix) string {
	elsewhere := ""
	if d.Kind == KindVXLAN {
		elsewhere = "choose another VNI, or "
	}
	if d.Alias != "" && d.Alias != Alias {
		return fmt.Sprintf("link %s has the alias %q, so it is another program's: %sip link del %s", d.Name,
			d.Alias, elsewhere, d.Name)
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
		d.Name, strings.Join(others, ", "), elsewhere, d.Name)
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
func (v Tunnel) String() string {
	if v.Kind != KindVXLAN {
		return fmt.Sprintf("%s local %v", v.Name, v.Local)
	}
	return fmt.Sprintf("%s id %d local %v dstport %d", v.Name, v.VNI, v.Local, v.Port)
}
