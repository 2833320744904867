// Package encap is the wire: how an inner IP packet is dressed to cross the
// underlay, how it is undressed, and the arithmetic on the way. It holds pure
// functions over byte slices. Nothing here does I/O, starts a goroutine, keeps
// state or allocates (an append allocates only if its destination lacks
// capacity), so every function is safe for concurrent use on distinct slices.
//
// One packet, byte offsets from the start of the outer IP header. Between the
// bars are the lengths:
//
//	                0         20        28
//	ip, outer v4    | IPv4 20 | UDP 8   | inner IPv4 or IPv6 packet …         MTU − 28
//	                0         40        48
//	ip, outer v6    | IPv6 40 | UDP 8   | inner packet …                      MTU − 48
//
//	                0         20        28        36            50
//	vxlan, outer v4 | IPv4 20 | UDP 8   | VXLAN 8 | Ethernet 14 | inner …     MTU − 50
//	                0         40        48        56            70
//	vxlan, outer v6 | IPv6 40 | UDP 8   | VXLAN 8 | Ethernet 14 | inner …     MTU − 70
//
// The overhead counts from the outer IP header, since that is what the MTU of
// the underlay counts from; the underlay's own Ethernet header is outside it.
//
// # In the order in which a packet meets it
//
// Going out: [ParseInner], [DecrementTTL] where we are the router,
// [PartialChecksum] and [CompleteChecksum], [AppendVXLAN], [AppendOuter].
// A packet that may not pass is answered with [AppendICMPError] or cut up by
// [Fragment4]. [FlowHash] keeps the packets of a flow together.
//
// Coming in: [ParseOuter], [ParseVXLAN], [ParseInner], [MartianSource] and
// [MartianDestination], [DecapECN] and [SetECN].
//
// Where we write and read whole Ethernet frames of the underlay, [FrameTemplate]
// and [ParseFrame] take the place of AppendOuter and ParseOuter, behind a
// [VNetHdr.Put] or, around a superpacket, a [VNetHdr.PutTunnel].
//
// # Several packets in a datagram
//
// A datagram of format ip may hold more than one inner packet, each delimited by
// its own length, and zeros behind the last, so that datagrams of one size can share
// a superframe. [NextPacked] takes them apart, [Padding] has the zeros. It is for
// peers that are known to read it: flannel's udp backend hands a datagram to the
// kernel as one packet, of which all but the first is lost.
//
// # Headroom
//
// The append functions write in place when they are given the free bytes in
// front of a packet. With the inner packet at buf[off:end],
//
//	AppendVXLAN(buf[off-VXLANOverhead:off-VXLANOverhead], h)
//
// dresses it without moving it, and buf[off-VXLANOverhead:end] is the payload
// of the datagram.
//
// # Errors
//
// Parsers return errors that wrap [ErrShort] or [ErrMalformed]; the other
// sentinels are named where they are returned. All are preallocated values, so
// that a flood of garbage costs no allocation either.
package encap
