package tunnel

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// Path is the kind of ports that carry packets between the TUN and the underlay.
type Path uint8

// The paths, from the most portable to the fastest.
const (
	_            Path = iota
	PathPortable      // wireguard/tun's Device, x/net's batches
	PathSocket        // virtio-net headers on the TUN, UDP_SEGMENT and UDP_GRO
	PathRaw           // AF_PACKET with virtio-net headers
)

// String returns the name used in the configuration.
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

// SourceCheck is how strictly the sources of packets from the underlay are checked.
type SourceCheck uint8

// The checks, strictest first.
const (
	_           SourceCheck = iota
	CheckStrict             // outer source is a peer, inner source is that peer's
	CheckOuter              // outer source is a peer
	CheckOff                // anything that parses
)

// String returns the name used in the configuration.
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

// ParseSourceCheck parses a SourceCheck from the configuration. An empty s means CheckStrict.
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

// Role is the purpose of a port. It decides which checks apply to the port's packets.
type Role uint8

// The roles.
const (
	_            Role = iota
	RoleHost          // the host's TUN: the kernel routes, so it has already decremented TTLs
	RolePod           // a pod's own interface: the engine is the pod's router
	RoleUnderlay      // datagrams to and from other nodes; the Port must be a port.Underlay
)

// PortID identifies an attached port. IDs are never reused.
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

// Spec is the input of NewTable: plain data, made from the leases.
type Spec struct {
	// Local lists this node's subnets. Packets from the underlay must have an inner destination in one of them.
	Local []netip.Prefix
	// Address4 and Address6 are the host TUN's addresses. ICMP errors to pods have them as the source. A zero
	// Addr suppresses ICMP errors of that family.
	Address4, Address6 netip.Addr
	// Self lists this node's outer addresses. Datagrams from one of them are dropped.
	Self []netip.Addr
	// UnderlayMTU is the underlay link's MTU, in bytes.
	UnderlayMTU int
	// MTU is the host TUN's MTU in bytes, or 0 if unknown. An ingress TCP packet that is larger and has a
	// partial checksum is a superpacket whose GSO description was lost on the way.
	MTU int
	// JoinedUDP means that a device of the underlay may coalesce UDP datagrams inside other packets. Format
	// ipip drops packets that may be such a superpacket.
	CoalescedUDP bool
	// Check is how strictly sources are checked. Its zero value is invalid. AllowedSources are inner sources
	// that every peer may use besides its own.
	Check          SourceCheck
	AllowedSources []netip.Prefix
	// VNI is the VXLAN network identifier. MAC4 and MAC6 are this node's VTEP addresses: peers send frames over
	// IPv4 to MAC4 and over IPv6 to MAC6.
	VNI        uint32
	MAC4, MAC6 encap.MAC
	// Peers lists all other nodes that can be reached, and LeftOut those that cannot. Only Name and Subnets of a
	// LeftOut entry matter. This host may not send packets with a source in the subnets of either.
	Peers, LeftOut []PeerSpec
}

// PeerSpec is one other node.
type PeerSpec struct {
	// Name is the node's name, or its subnet. It is for people.
	Name string
	// Addr is the outer address of the peer.
	Addr netip.Addr
	// Sources are further outer addresses that the peer may send from.
	Sources []netip.Addr
	// Subnets are routed to the peer. The peer may use inner sources within them.
	Subnets []netip.Prefix
	// InnerSources are further inner sources that the peer may use: its PublicIP.
	InnerSources []netip.Addr
	// Weft means that the peer runs weft: it accepts inner IPv6 in format ip, and decapsulates outer ECN. Recv
	// lists its other capabilities. They do not apply to format vxlan.
	Weft bool
	Recv port.Recv
	// MTU is the largest inner packet that the peer accepts, in bytes, or 0 if unknown.
	MTU int
	// MAC is the peer's VTEP address in format vxlan. A node with a VTEP for each outer family is listed as two
	// peers.
	MAC encap.MAC
}

// Stats is a snapshot of the counters. In each direction Received = Delivered + the sum of Drops, in inner
// packets.
type Stats struct {
	Egress, Ingress Flow
	// ICMPSent counts ICMP errors sent. ICMPSuppressed counts those that the rate limit withheld.
	ICMPSent, ICMPSuppressed uint64
	// Fragmented counts inner IPv4 packets that were fragmented. Completed counts inner packets that arrived
	// with a partial checksum and were accepted.
	Fragmented, Completed uint64
	// SocketOverflow counts datagrams that the kernel dropped at the socket (sk_drops). The reasons are a full
	// receive buffer, the throttling filter and a wrong checksum.
	SocketOverflow uint64
	// HeldBack is the number of peers that are throttled now. A throttled peer took more than its share of a
	// full receive queue, and a socket filter admits only a part of its datagrams.
	HeldBack int
	// Wakeups counts how often workers woke, and Batches the batches that they moved.
	Wakeups, Batches uint64
	// Ports is the number of ports attached.
	Ports int
	// Offloads lists the offloads of all ports, each once, in the order in which a packet meets them.
	Offloads []port.OffloadStats
	// Outlets lists how each underlay that has a choice sends superpackets, sorted by address.
	Outlets []port.OutletStats
}

// Flow has the counters of one direction.
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
	// LastRx is when a packet of the peer last arrived, with a resolution of one second. It is zero if none has.
	LastRx time.Time
	// MTU is the largest inner packet that is sent to the peer now. PathMTU is the outer MTU learnt from
	// packet-too-big messages, or 0 if none is in force. Both are in bytes.
	MTU, PathMTU int
	// Drops counts ingress packets of the peer that were dropped, by reason.
	Drops [port.NumDropReasons]uint64
	// Unreachable has the ICMP errors about datagrams to the peer.
	Unreachable Unreachable
}

// Stranger is a source address that belongs to no peer, and the number of its packets.
type Stranger struct {
	Addr    netip.Addr
	Packets uint64
	LastRx  time.Time
}
