// Package encap has the wire formats: how an inner IP packet is encapsulated to
// cross the underlay, how it is decapsulated, and the checksums, lengths and
// congestion marks that change with that. It holds pure functions over byte
// slices. Nothing here does I/O, starts a goroutine, keeps state or allocates (an
// append allocates only if its destination lacks capacity), so every function is
// safe for concurrent use on distinct slices.
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
// Going out: [ParseInner], and [ParseSuper] if the packet stands for several; [DecrementTTL]
// where we are the router; [FlowPairHash], which keeps both directions of a flow together;
// [AppendVXLAN]. A packet that may not pass is answered with [AppendICMPError] or cut up by
// [Fragment4]. [FinishChecksum] completes a checksum where what follows cannot, and
// [Super.AppendHeader] makes the header of every segment. [FrameTemplate.Put] writes the outer
// headers where we send Ethernet frames, behind a [VNetHdr.Put] or, around a superpacket, a
// [VNetHdr.PutTunnel]; where we send by a UDP socket the kernel writes them.
//
// Coming in: [ParseFrame] where we read Ethernet frames; [ParseVXLAN], [ParseInner],
// [MartianSource] and [MartianDestination], [DecapECN] and [SetECN], [PartialChecksum].
// A [Run] makes one superpacket of the packets of a flow.
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
// encapsulates it without moving it, and buf[off-VXLANOverhead:end] is the payload
// of the datagram.
//
// # Errors
//
// Parsers return errors that wrap [ErrShort] or [ErrMalformed]; the other
// sentinels are named where they are returned. All are preallocated values, so
// that a flood of garbage costs no allocation either.
package encap
