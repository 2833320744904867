package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft/test/lab"
	"weft/tunnel"
)

// Reference is the name of the rung to which the others' figures are taken as ratios. If it is not measured,
// NodeBridge is the one, for those whose pods are on one node.
const Reference = "vxlan"

// Names of rungs. Auto is that of a weftd that chooses its path itself, and Direct that of one whose pods are
// attached directly. NodeBridge and NodeDirect are rungs of two pods on one node, which nothing carries
// between nodes. WireGuard is another program that joins nodes from user space, and that a user may take
// instead of weft; Encrypted beside it shows what weft's TUN and sockets are worth around the same cipher.
// Rootless is an ordinary user's weftd.
const (
	Veth       = "veth"
	Auto       = "auto"
	IPIP       = "ipip"
	Encrypted  = "wireguard"
	Direct     = "direct"
	NodeBridge = "node-bridge"
	NodeDirect = "node-direct"
	WireGuard  = "wireguard-go"
	Rootless   = "rootless"
)

// when says in which runs a rung is measured.
type when uint8

const (
	named when = iota // only if it is asked for: it is to be compared with another such rung
	full              // in a long run too
	usual             // in each run that names no rungs
)

// Rung is one arrangement in which the pods of two nodes are joined.
type Rung struct {
	Name, About string
	when        when
	// lab is what is built for it. With driver Bare it is measured between the nodes themselves.
	lab lab.Spec
	// path is the one that weftd is told to take; "" leaves it to weftd.
	path string
}

// Rungs returns all rungs, in the order of a round.
func Rungs() []Rung {
	onPath := func(p tunnel.Path) lab.Spec {
		return lab.Spec{Driver: lab.Weftd, NetworkConfig: backend(fmt.Sprintf(`"Type":"udp","Path":%q`, p))}
	}
	ofType := func(name string) lab.Spec {
		return lab.Spec{Driver: lab.Weftd,
			NetworkConfig: backend(fmt.Sprintf(`"Type":%q,"Userspace":"always"`, name))}
	}
	bare, weftd := lab.Spec{Driver: lab.Bare}, lab.Spec{Driver: lab.Weftd}
	portable, socket, raw := tunnel.PathPortable, tunnel.PathSocket, tunnel.PathRaw
	return []Rung{
		{Veth, "one veth pair from pod to pod: what the generators themselves can do", full, bare, ""},
		{"host-gw", "the kernel's routing, set up by hand: the least a kernel can do", usual,
			lab.Spec{Driver: lab.KernelHostGW}, ""},
		{Reference, "the kernel's vxlan, set up by hand", usual, lab.Spec{Driver: lab.KernelVXLAN}, ""},
		{portable.String(), "weftd, path portable: wireguard/tun's Device and batches of datagrams", full,
			onPath(portable), portable.String()},
		{socket.String(), "weftd, path socket: TUN and UDP socket with the kernel's offloads", usual,
			onPath(socket), socket.String()},
		{raw.String(), "weftd, path raw: frames in and out past the IP stack, whole superpackets where the " +
			"kernel can", usual, onPath(raw), raw.String()},
		{Auto, "weftd with nothing configured", usual, weftd, ""},
		{IPIP, "weftd of type ipip in user space: TUN and raw socket, each packet by itself through the kernel",
			named, ofType(IPIP), ""},
		{Encrypted, "weftd of type wireguard in user space. It encrypts, as wireguard-go does", named,
			ofType(Encrypted), ""},
		{Direct, "weftd with nothing configured, its pods attached directly: neither bridge nor veth pair", full,
			lab.Spec{Driver: lab.Weftd, Attach: lab.DirectAttach}, ""},
		{NodeBridge, "two pods of one node, by the kernel's bridge", named,
			lab.Spec{Driver: lab.KernelHostGW, PodsPerNode: 2}, ""},
		{NodeDirect, "two pods of one node, attached directly: weftd moves what they say", named,
			lab.Spec{Driver: lab.Weftd, Attach: lab.DirectAttach, PodsPerNode: 2}, ""},
		{WireGuard, "wireguard-go, another tunnel in user space. It encrypts, which the other rungs do not", usual,
			lab.Spec{Driver: lab.WireGuardGo}, ""},
		{Rootless, "weftd of an ordinary user, without root: the TUN in the user's namespace, the socket on the " +
			"host", named, lab.Spec{Driver: lab.Weftd, Rootless: true}, ""},
	}
}

// backend is a network configuration with those settings of its backend.
func backend(settings string) json.RawMessage {
	return json.RawMessage(`{"Network":"10.42.0.0/16","Backend":{` + settings + `}}`)
}

// onOneNode reports whether both pods are on one node.
func (r Rung) onOneNode() bool { return r.lab.PodsPerNode > 1 }

// Usual returns the names of the rungs that are measured unless others or a long run are asked for.
func Usual() (names []string) {
	for _, r := range Rungs() {
		if r.when == usual {
			names = append(names, r.Name)
		}
	}
	return names
}

// choose returns the rungs with those names, in the order of Rungs, or if there are no names those of a long
// run.
func choose(names []string) (l []Rung, err error) {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var all []string
	for _, r := range Rungs() {
		if wanted[r.Name] || len(names) == 0 && r.when >= full {
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

// needs says whether one of the rungs is such a one.
func (c Config) needs(is func(lab.Spec) bool) bool {
	rungs, _ := choose(c.Rungs)
	return slices.ContainsFunc(rungs, func(r Rung) bool { return is(r.lab) })
}

func byWeftd(s lab.Spec) bool  { return s.Driver == lab.Weftd }
func directly(s lab.Spec) bool { return s.Attach == lab.DirectAttach }
