package underlay

import (
	"slices"

	"weft/routing/internal/kernel"
)

// guest says whether a link of a kind joins a bridge to a container or a virtual machine of this host.
func guest(kind string) bool { return slices.Contains([]string{"veth", "tap", "tun", "tuntap"}, kind) }

// below are the links that a frame meets which leaves by the one numbered index, that one first: the parent
// of a VLAN or a macvlan, and the ports of a bond, a team or a bridge. Of a bridge's ports those to guests
// are left out, unless it has no others. A parent in another namespace cannot be seen, and what is below it
// neither.
func below(links []kernel.Device, index int) (met []kernel.Device) {
	byIndex := map[int]kernel.Device{}
	for _, l := range links {
		byIndex[l.Index] = l
	}
	seen := map[int]bool{}
	for level := []int{index}; len(level) > 0 && len(seen) < len(links); {
		var next []int
		for _, i := range level {
			l, ok := byIndex[i]
			if !ok || seen[i] {
				continue
			}
			seen[i] = true
			met = append(met, l)
			if l.Parent != 0 {
				next = append(next, l.Parent)
			}
			if joins(l.Kind) {
				next = append(next, ports(links, l)...)
			}
		}
		level = next
	}
	return met
}

// joins says whether a link of a kind sends by ports.
func joins(kind string) bool { return kind == "bond" || kind == "team" || kind == "bridge" }

// ports are the numbers of the links that a link sends by.
func ports(links []kernel.Device, of kernel.Device) (outward []int) {
	var all []int
	for _, l := range links {
		if l.Master != of.Index || !l.Up {
			continue
		}
		all = append(all, l.Index)
		if of.Kind != "bridge" || !guest(l.Kind) {
			outward = append(outward, l.Index)
		}
	}
	if len(outward) == 0 {
		return all
	}
	return outward
}
