package tunnel

// DropReason says why a packet went no further. Every drop has exactly one.
type DropReason uint8

// The reasons, in the order in which a packet meets the checks.
const (
	DropTruncated     DropReason = iota // longer than a slot of the ring
	DropMalformed                       // no whole IPv4 or IPv6 header, or lengths that contradict each other
	DropUnknownPeer                     // outer source is no peer's (SourceCheck)
	DropOwnSource                       // outer source is one of this node's own addresses
	DropForeignVNI                      // a VXLAN header with another network's number
	DropForeignMAC                      // an inner Ethernet destination that is not this node's, broadcasts included
	DropECN                             // marked as congested outside, and cannot carry the mark inside (RFC 6040 section 4.2)
	DropMartian                         // inner source or destination that never crosses a router
	DropForeignSource                   // inner source is not the sender's; on the way out, another node's (SourceCheck, AllowedSources)
	DropForeignDest                     // inner destination is not this node's
	DropNested                          // this network's encapsulation inside itself
	DropTTL                             // TTL or hop limit is used up
	DropNoRoute                         // no peer has the inner destination
	DropUnsupported                     // IPv6 to a peer that takes only IPv4, or an ICMP redirect to a directly attached pod
	DropSegments                        // a superpacket that stands for more than 1,024 packets; it counts as one
	DropTooBig                          // larger than the path carries, and may not be fragmented
	DropMulticast                       // multicast or broadcast, which the overlay does not carry
	DropUnderlay                        // the kernel refused the datagram: no route, no address, no neighbour, or no carrier
	DropBusy                            // a queue of the underlay or of the port stayed full
	DropClosed                          // the port went away
	NumDropReasons                      // how many there are
)

var dropNames = [NumDropReasons]string{
	DropTruncated:     "truncated",
	DropMalformed:     "malformed",
	DropUnknownPeer:   "unknown_peer",
	DropOwnSource:     "own_source",
	DropForeignVNI:    "foreign_vni",
	DropForeignMAC:    "foreign_mac",
	DropECN:           "ecn",
	DropMartian:       "martian",
	DropForeignSource: "foreign_source",
	DropForeignDest:   "foreign_destination",
	DropNested:        "nested",
	DropTTL:           "ttl",
	DropNoRoute:       "no_route",
	DropUnsupported:   "unsupported",
	DropSegments:      "too_many_segments",
	DropTooBig:        "too_big",
	DropMulticast:     "multicast",
	DropUnderlay:      "underlay",
	DropBusy:          "busy",
	DropClosed:        "closed",
}

// String is the reason's label in metrics and in weft peers.
func (r DropReason) String() string {
	if r < NumDropReasons {
		return dropNames[r]
	}
	return "invalid"
}

// Admit names the setting that would let such packets through, or is empty when none would.
func (r DropReason) Admit() string {
	switch r {
	case DropUnknownPeer:
		return `the sender's lease (or Backend.SourceCheck "off")`
	case DropForeignSource:
		return `Backend.AllowedSources (or Backend.SourceCheck "outer")`
	default: // no setting admits the others
		return ""
	}
}
