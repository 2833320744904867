package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// VTEP has the attributes of a vxlan device that we keep. It is comparable.
type VTEP struct {
	Name  string
	Alias string
	MAC   MAC
	MTU   int // bytes
	Up    bool
	// Index is the link's number; 0 if there is none yet. It is not compared.
	Index int

	// A device cannot change these. Under is the number of the underlay link, Local the
	// outer source address.
	VNI           uint32
	Port          uint16
	Under         int
	Local         netip.Addr
	GBP, Learning bool
	// Other lists attributes that we leave at the kernel's defaults and that differ; "" if none does.
	Other string
}

// VTEPPlan is what to do about one device.
type VTEPPlan struct {
	// Create says that there is none; Recreate says why the one that is there has to go first.
	Create   bool
	Recreate string
	// Set are the attributes to change: "mac", "mtu", "alias", "up".
	Set []string
	// Adopted says that it was flannel's.
	Adopted bool
}

// PlanVTEP compares a device in full. have is nil if there is none. It is pure.
func PlanVTEP(have *VTEP, want VTEP) VTEPPlan {
	if have == nil {
		return VTEPPlan{Create: true}
	}
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
	if len(differ) > 0 {
		return VTEPPlan{Recreate: strings.Join(differ, "; ")}
	}
	var p VTEPPlan
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
	p.Adopted = have.Alias == "" && want.Alias != ""
	return p
}

// Len returns about how many kernel calls the plan makes.
func (p VTEPPlan) Len() int {
	if p.Create || p.Recreate != "" {
		return 1
	}
	return len(p.Set)
}

// VTEPStrange says why a device of the name that we want is not ours to take, and what to do;
// "" if it is. Ours and flannel's have an address in the network, or none yet. It is pure.
func VTEPStrange(d VTEP, addrs []netip.Prefix, networks []netip.Prefix) string {
	if d.Alias != "" && d.Alias != Alias {
		return fmt.Sprintf("link %s has the alias %q, so it is another program's: choose another VNI, or ip link del %s", d.Name, d.Alias, d.Name)
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
	return fmt.Sprintf("link %s has the address %s of another network: choose another VNI, or ip link del %s if nothing uses it",
		d.Name, strings.Join(others, ", "), d.Name)
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
func (v VTEP) String() string {
	return fmt.Sprintf("%s id %d local %v dstport %d", v.Name, v.VNI, v.Local, v.Port)
}
