package tunnel

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// Path is a kind of ports by which packets move between the TUN and the underlay.
type Path uint8

// The paths, from the one that runs anywhere to the fastest.
const (
	_            Path = iota
	PathPortable      // wireguard/tun's Device, x/net's batches
	PathSocket        // virtio-net headers on the TUN, UDP_SEGMENT and UDP_GRO
	PathRaw           // AF_PACKET with virtio-net headers
)

// String is the name used in the configuration.
func (p Path) String() string {
	switch p {
	case PathPortable:
		return "portable"
	case PathSocket:
		return "socket"
	case PathRaw:
		return "raw"
	}
	return fmt.Sprintf("path(%d)", uint8(p))
}

// SourceCheck says which packets from the underlay are accepted.
type SourceCheck uint8

// The checks, strictest first.
const (
	_           SourceCheck = iota
	CheckStrict             // outer source is a peer, inner source is that peer's
	CheckOuter              // outer source is a peer
	CheckOff                // anything that parses
)

// String is the name used in the configuration.
func (c SourceCheck) String() string {
	switch c {
	case CheckStrict:
		return "strict"
	case CheckOuter:
		return "outer"
	case CheckOff:
		return "off"
	}
	return fmt.Sprintf("sourcecheck(%d)", uint8(c))
}

// ParseSourceCheck returns the check that the configuration names s; "" is CheckStrict.
func ParseSourceCheck(s string) (SourceCheck, error) {
	switch strings.ToLower(s) {
	case "", "strict":
		return CheckStrict, nil
	case "outer":
		return CheckOuter, nil
	case "off":
		return CheckOff, nil
	}
	return 0, fmt.Errorf("%q is not one of strict, outer, off", s)
}

// Role is the purpose of a port, which decides the checks that its packets meet.
type Role uint8

// The roles.
const (
	_            Role = iota
	RoleHost          // the host's TUN: the kernel routes, so TTLs are already decremented
	RolePod           // a pod's own interface: we are its router
	RoleUnderlay      // datagrams to and from other nodes; the Port is an Underlay
)

// PortID names an attached port; it is never reused.
type PortID uint64

func (r Role) String() string {
	switch r {
	case RoleHost:
		return "host"
	case RolePod:
		return "pod"
	case RoleUnderlay:
		return "underlay"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Spec is the input of NewTable: plain data, made from the lease set.
type Spec struct {
	// Local lists our own subnets. From the underlay, no other inner destination is accepted.
	Local []netip.Prefix
	// Address4 and Address6 are the host TUN's addresses, the source of ICMP errors that
	// we send to our own pods. The zero Addr suppresses them for that family.
	Address4, Address6 netip.Addr
	// Self lists the outer addresses of this node. A datagram from one of them is refused.
	Self []netip.Addr
	// UnderlayMTU is the underlay link's MTU, in bytes.
	UnderlayMTU int
	// MTU is the host TUN's MTU, in bytes; 0 if unsaid. An inner TCP packet that arrives larger
	// with a partial checksum is a superpacket that lost its description on the way.
	MTU int
	// JoinedUDP means that a device of the underlay may coalesce UDP datagrams inside other packets. Format
	// ipip drops packets that may be such a run.
	JoinedUDP bool
	// Check is how far sources are verified; its zero value is a fault, not a default. AllowedSources
	// are inner sources that any peer may use besides its own.
	Check          SourceCheck
	AllowedSources []netip.Prefix
	// VNI is the network's number in format vxlan. MAC4 and MAC6 are this node's Ethernet addresses
	// there: peers send frames over IPv4 to MAC4, and over IPv6 to MAC6.
	VNI        uint32
	MAC4, MAC6 encap.MAC
	// Peers lists all other nodes that can be reached, and LeftOut those that cannot. Of LeftOut only Name
	// and Subnets count. Nobody on this host may send from a subnet of either.
	Peers, LeftOut []PeerSpec
}

// PeerSpec is one other node.
type PeerSpec struct {
	// Name is for people: what the node is called, or its subnet.
	Name string
	// Addr is the outer address that packets are sent to.
	Addr netip.Addr
	// Sources are further outer addresses that the peer may send from.
	Sources []netip.Addr
	// Subnets are routed to the peer, and it may use inner sources within them.
	Subnets []netip.Prefix
	// InnerSources are further inner addresses of the peer: its PublicIP.
	InnerSources []netip.Addr
	// Weft means that the peer's record has weft's object: the peer accepts inner IPv6 in format ip, and
	// outer ECN. Recv lists its other capabilities, which do not apply to format vxlan.
	Weft bool
	Recv port.Recv
	// MTU is the largest inner packet that the peer takes, in bytes; 0 if it has not said.
	MTU int
	// MAC is the Ethernet address of the peer's end in format vxlan. A node with one for each outer family is
	// listed as two peers.
	MAC encap.MAC
}

// Stats is a snapshot of the counters. In each direction
// Received = Delivered + the sum of Drops, in inner packets.
type Stats struct {
	Egress, Ingress Flow
	// ICMPSent counts errors that we wrote back to our own pods; ICMPSuppressed those
	// that the rate limit withheld.
	ICMPSent, ICMPSuppressed uint64
	// Fragmented counts inner IPv4 packets that were fragmented to a peer's smaller MTU;
	// Completed counts inner checksums that arrived partial, and were filled in or handed
	// on as such.
	Fragmented, Completed uint64
	// SocketOverflow counts datagrams that the kernel dropped at the socket (sk_drops):
	// the receive buffer was full, the filter held the peer back, or the checksum was wrong.
	SocketOverflow uint64
	// HeldBack is the number of peers that are held back now. Such a peer took more than its share of a full
	// receive queue, and the filter admits only a part of its datagrams.
	HeldBack int
	// Wakeups and Batches say how often workers woke and how many batches they moved.
	Wakeups, Batches uint64
	// Ports is the number of ports attached.
	Ports int
	// Offloads lists the offloads of all ports, each once, in the order in which a packet meets them.
	Offloads []port.OffloadStats
	// Outlets lists the outlets of the ports that have a choice, sorted by address.
	Outlets []port.OutletStats
}

// Flow is one direction's share of Stats.
type Flow struct {
	Received, Delivered           uint64
	ReceivedBytes, DeliveredBytes uint64 // of inner packets
	Drops                         [port.NumDropReasons]uint64
}

// PeerStats is a snapshot of the traffic with one peer.
type PeerStats struct {
	Name               string
	Addr               netip.Addr
	TxPackets, TxBytes uint64
	RxPackets, RxBytes uint64
	// LastRx is when a packet of the peer last arrived; zero if never. One-second resolution.
	LastRx time.Time
	// MTU is the largest inner packet sent to the peer now, in bytes, and PathMTU the
	// outer MTU learnt from packet-too-big messages, 0 if none is in force.
	MTU, PathMTU int
	// Drops counts packets from the peer that were refused, by reason.
	Drops [port.NumDropReasons]uint64
	// Unreachable has the ICMP errors about datagrams to the peer.
	Unreachable Unreachable
}

// Stranger is an outer source that belongs to no peer, with a count of its packets.
type Stranger struct {
	Addr    netip.Addr
	Packets uint64
	LastRx  time.Time
}
