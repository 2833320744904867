package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft/tunnel"
)

// Reference is the name of the rung to which the others' figures are taken as ratios.
const Reference = "vxlan"

// way says who carries a rung's packets.
type way uint8

const (
	_         way = iota
	link          // one veth pair from pod to pod, and nothing else
	hostGW        // the kernel's routing, set up by hand
	vxlan         // the kernel's vxlan, set up by hand
	weftd         // weftd, by the path of the rung's name
	wireguard     // wireguard-go, which encrypts
)

// Auto is the rung of a weftd that chooses its path itself. WireGuard is the rung of another program that
// joins nodes from user space, and that a user may take instead of weft.
const (
	Auto      = "auto"
	WireGuard = "wireguard-go"
)

// Rung is one arrangement in which the pods of two nodes are joined.
type Rung struct {
	// Name is also weftd's Backend.Path where weftd carries the packets, unless it is Auto.
	Name, About string
	way         way
}

// Rungs returns all rungs, in the order of a round.
func Rungs() []Rung {
	return []Rung{
		{"veth", "one veth pair from pod to pod: what the generators themselves can do", link},
		{"host-gw", "the kernel's routing, set up by hand: the least a kernel can do", hostGW},
		{Reference, "the kernel's vxlan, set up by hand", vxlan},
		{tunnel.PathPortable.String(), "weftd, path portable: TUN and UDP socket, a packet at a time", weftd},
		{tunnel.PathSocket.String(), "weftd, path socket: TUN and UDP socket with the kernel's offloads", weftd},
		{tunnel.PathRaw.String(), "weftd, path raw: frames in and out past the IP stack, whole superpackets where the kernel can", weftd},
		{Auto, "weftd with nothing configured", weftd},
		{WireGuard, "wireguard-go, another tunnel in user space. It encrypts, which the other rungs do not", wireguard},
	}
}

// Usual returns the names of the rungs that are measured unless others or a long run are asked for: all but the bare
// veth pair, which only shows what the generators can do, and path portable, which is for old kernels.
func Usual() (names []string) {
	for _, r := range Rungs() {
		if r.way != link && r.Name != tunnel.PathPortable.String() {
			names = append(names, r.Name)
		}
	}
	return names
}

// choose returns the rungs with those names, in the order of Rungs, and all rungs if there are no names.
func choose(names []string) (l []Rung, err error) {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var all []string
	for _, r := range Rungs() {
		if wanted[r.Name] || len(names) == 0 {
			l = append(l, r)
		}
		delete(wanted, r.Name)
		all = append(all, r.Name)
	}
	var faults []error
	for n := range wanted {
		faults = append(faults, fmt.Errorf("there is no rung %q: it is one of %s", n, strings.Join(all, ", ")))
	}
	return l, errors.Join(faults...)
}

// NeedsWeftd says whether weftd carries packets for one of the rungs.
func (c Config) NeedsWeftd() bool { return c.needs(weftd) }

func (c Config) needs(w way) bool {
	rungs, _ := choose(c.Rungs)
	return slices.ContainsFunc(rungs, func(r Rung) bool { return r.way == w })
}
