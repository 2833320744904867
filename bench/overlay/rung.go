package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft/tunnel"
)

// Reference is the name of the rung to which the others' figures are taken as ratios. If it is not measured,
// NodeBridge is the one, for those whose pods are on one node.
const Reference = "vxlan"

// way says who carries a rung's packets.
type way uint8

const (
	_          way = iota
	link           // one veth pair from pod to pod, and nothing else
	hostGW         // the kernel's routing, set up by hand
	vxlan          // the kernel's vxlan, set up by hand
	weftd          // weftd, by the path of the rung's name
	otherType      // weftd, by the backend type of the rung's name, in user space
	direct         // weftd, with pods that are attached directly
	nodeBridge     // both pods on one node, by the kernel's bridge
	nodeDirect     // both pods on one node, attached directly
	wireguard      // wireguard-go, which encrypts
	rootless       // weftd of an ordinary user's, in namespaces of that user's
	slirp          // the kernel's vxlan there, over slirp4netns
)

// usesWeftd says whether weftd carries the packets.
func (w way) usesWeftd() bool { return w == weftd || w == otherType || w.isDirect() }

// isDirect says whether pods are attached directly.
func (w way) isDirect() bool { return w == direct || w == nodeDirect }

// onOneNode says whether both pods are on one node.
func (w way) onOneNode() bool { return w == nodeBridge || w == nodeDirect }

// Auto is the rung of a weftd that chooses its path itself, and Direct that of one whose pods are attached
// directly. NodeBridge and NodeDirect are rungs of two pods on one node, which nothing carries between nodes.
// WireGuard is the rung of another program that joins nodes from user space, and that a user may take instead
// of weft.
const (
	Auto       = "auto"
	Direct     = "direct"
	NodeBridge = "node-bridge"
	NodeDirect = "node-direct"
	WireGuard  = "wireguard-go"
)

// IPIP and Encrypted are the rungs of weftds of the types by those names. Encrypted beside WireGuard shows
// what weft's TUN and sockets are worth around the same cipher.
const (
	IPIP      = "ipip"
	Encrypted = "wireguard"
)

// Rootless is the rung of an ordinary user's weftd, and Slirp what such a user has without: kernel vxlan
// between namespaces that slirp4netns joins to the hosts' network.
const (
	Rootless = "rootless"
	Slirp    = "slirp4netns"
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
		{tunnel.PathPortable.String(), "weftd, path portable: wireguard/tun's Device and batches of datagrams",
			weftd},
		{tunnel.PathSocket.String(), "weftd, path socket: TUN and UDP socket with the kernel's offloads", weftd},
		{tunnel.PathRaw.String(), "weftd, path raw: frames in and out past the IP stack, whole superpackets " +
			"where the kernel can", weftd},
		{Auto, "weftd with nothing configured", weftd},
		{IPIP, "weftd of type ipip in user space: TUN and raw socket, each packet by itself through the kernel",
			otherType},
		{Encrypted, "weftd of type wireguard in user space. It encrypts, as wireguard-go does", otherType},
		{Direct, "weftd with nothing configured, its pods attached directly: neither bridge nor veth pair", direct},
		{NodeBridge, "two pods of one node, by the kernel's bridge", nodeBridge},
		{NodeDirect, "two pods of one node, attached directly: weftd moves what they say", nodeDirect},
		{WireGuard, "wireguard-go, another tunnel in user space. It encrypts, which the other rungs do not",
			wireguard},
		{Rootless, "weftd of an ordinary user, without root: the TUN in the user's namespace, the socket on the " +
			"host", rootless},
		{Slirp, "the kernel's vxlan in namespaces of an ordinary user's, by RootlessKit and slirp4netns", slirp},
	}
}

// asUser reports whether the rung is an ordinary user's: whether its testbed is one without root.
func (r Rung) asUser() bool { return r.way == rootless || r.way == slirp }

// Usual returns the names of the rungs that are measured unless others or a long run are asked for: all but
// the bare veth pair, which only shows what the generators can do, path portable, which is for old kernels,
// direct, for the time that it takes, those of other types and of one node, and what an ordinary user has.
func Usual() (names []string) {
	for _, r := range Rungs() {
		if r.way != link && r.way != otherType && !r.way.isDirect() && !r.way.onOneNode() &&
			r.Name != tunnel.PathPortable.String() && !r.asUser() {
			names = append(names, r.Name)
		}
	}
	return names
}

// choose returns the rungs with those names, in the order of Rungs. If there are no names, it is all but
// those of one node, those of an ordinary user's, and those of other types: each of the pairs of the first
// two kinds is to be compared with each other.
func choose(names []string) (l []Rung, err error) {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var all []string
	for _, r := range Rungs() {
		if wanted[r.Name] || len(names) == 0 && r.way != otherType && !r.way.onOneNode() && !r.asUser() {
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
func (c Config) NeedsWeftd() bool {
	return c.needs(way.usesWeftd) || c.needs(is(rootless))
}

func is(one way) func(way) bool { return func(w way) bool { return w == one } }

// NeedsWeft says whether pods of one of the rungs are attached by the command weft.
func (c Config) NeedsWeft() bool { return c.needs(way.isDirect) }

func (c Config) needs(is func(way) bool) bool {
	rungs, _ := choose(c.Rungs)
	return slices.ContainsFunc(rungs, func(r Rung) bool { return is(r.way) })
}
