package tunnel

// DropReason says why a packet went no further. Every drop has exactly one.
type DropReason uint8

// The reasons, in the order in which a packet meets the checks.
const (
	DropTruncated     DropReason = iota // datagram or packet longer than the ring's slot
	DropMalformed                       // no whole IPv4 or IPv6 header, or lengths that contradict each other
	DropUnknownPeer                     // outer source is no peer's (SourceCheck)
	DropOwnSource                       // outer source is one of our own addresses
	DropForeignVNI                      // a VXLAN header with another network's number
	DropForeignMAC                      // an inner Ethernet destination that is not ours, broadcasts included
	DropECN                             // outer CE on an inner packet that cannot carry it (RFC 6040 section 4.2)
	DropMartian                         // inner source or destination that never crosses a router
	DropForeignSource                   // inner source is not the peer's, or not the port's (SourceCheck, AllowedSources)
	DropForeignDest                     // inner destination is not ours
	DropNested                          // our own encapsulation inside itself
	DropTTL                             // TTL or hop limit 0 after decapsulation, or used up on the way out
	DropNoRoute                         // no peer has the inner destination
	DropUnsupported                     // inner IPv6 to a peer that takes only IPv4
	DropSegments                        // a superpacket that stands for more than maxSegments packets
	DropTooBig                          // larger than the path carries, and may not be fragmented
	DropMulticast                       // multicast or broadcast, which the overlay does not carry
	DropUnderlay                        // the underlay refused the datagram: no route, no address, no neighbour
	DropBusy                            // the underlay's or the port's queue stayed full
	DropClosed                          // the port went away meanwhile
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
