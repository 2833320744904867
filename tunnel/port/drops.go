package port

// DropReason is the reason why a packet was dropped. Every dropped packet has exactly one.
type DropReason uint8

// The reasons, in the order in which a packet meets the checks.
const (
	DropTruncated DropReason = iota
	DropMalformed
	DropUnknownPeer
	DropOwnSource
	DropForeignVNI
	DropForeignMAC
	DropECN
	DropMartian
	DropForeignSource
	DropForeignDest
	DropNested
	DropTTL
	DropNoRoute
	DropUnsupported
	DropSegments
	DropTooBig
	DropMulticast
	DropUnderlay
	DropBusy
	DropClosed
	NumDropReasons // number of reasons
)

// drops has each reason's code, its description, and the setting that would admit such packets, if any.
var drops = [NumDropReasons + 1]struct{ code, sentence, admit string }{
	DropTruncated: {"truncated", "The packet was longer than a slot of the ring.", ""},
	DropMalformed: {"malformed", "The packet has no whole IPv4 or IPv6 header, or lengths that contradict " +
		"each other.", ""},
	DropUnknownPeer: {"unknown_peer", "The outer source is no peer's address (`Backend.SourceCheck`).",
		`the sender's lease (or Backend.SourceCheck "off")`},
	DropOwnSource:  {"own_source", "The outer source is one of this node's own addresses.", ""},
	DropForeignVNI: {"foreign_vni", "vxlan in user space: the VNI is another network's.", ""},
	DropForeignMAC: {"foreign_mac", "vxlan in user space: the Ethernet destination is not this node's; " +
		"broadcasts are " +
		"included.", ""},
	DropECN: {"ecn", "The outer header says that there was congestion, and the inner packet cannot carry " +
		"the mark (RFC 6040).", ""},
	DropMartian: {"martian", "An inner address never crosses a router.", ""},
	DropForeignSource: {"foreign_source", "The inner source is not the sender's; on the way out, it is " +
		"another node's " +
		"(`Backend.AllowedSources`, `Backend.SourceCheck`).",
		`Backend.AllowedSources (or Backend.SourceCheck "outer")`},
	DropForeignDest: {"foreign_destination", "The inner destination is not this node's.", ""},
	DropNested:      {"nested", "The packet is weft's own encapsulation inside itself.", ""},
	DropTTL:         {"ttl", "The packet has no hop left.", ""},
	DropNoRoute:     {"no_route", "No peer has the destination.", ""},
	DropUnsupported: {"unsupported", "The packet is IPv6, and the peer takes only IPv4; or it is an ICMP " +
		"redirect to a " +
		"directly attached pod, which has one way only.", ""},
	DropSegments: {"too_many_segments", "A superpacket stands for more than 1,024 packets, since its sender " +
		"chose segments of" +
		" some ten bytes; it counts as one packet.", ""},
	DropTooBig: {"too_big", "The packet is larger than the path carries, and may not be fragmented.", ""},
	DropMulticast: {"multicast", "The destination is multicast or broadcast, which the overlay does not carry.",
		""},
	DropUnderlay: {"underlay", "The underlay could not send the packet: the kernel refused it (no route, no " +
		"address), the next hop does not answer (its entry in `ip neigh` is FAILED), or the " +
		"link has no carrier. Packets that left before the kernel noticed count as delivered.", ""},
	DropBusy: {"busy", "A queue stayed full. In a flood of ICMP errors Linux does not report the underlay's " +
		"own queue, and drops there count as sent.", ""},
	DropClosed:     {"closed", "The port went away.", ""},
	NumDropReasons: {code: "invalid"},
}

// String returns the reason's code, as in metrics and in weft peers.
func (r DropReason) String() string { return drops[min(r, NumDropReasons)].code }

// Sentence describes the reason.
func (r DropReason) Sentence() string { return drops[min(r, NumDropReasons)].sentence }

// Admit names the setting that would admit such packets, or "".
func (r DropReason) Admit() string { return drops[min(r, NumDropReasons)].admit }
