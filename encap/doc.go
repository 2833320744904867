// Package encap has the wire formats: how an inner IP packet is encapsulated to
// cross the underlay, how it is decapsulated, and the checksums, lengths and
// congestion marks that change with that. It holds pure functions over byte
// slices. Nothing here does I/O, starts a goroutine, keeps state or allocates (an
// append allocates only if its destination lacks capacity), so every function is
// safe for concurrent use on distinct slices.
//
// This is one packet. The offsets above it are bytes from the start of the outer
// IP header, and the numbers between the bars are lengths:
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
// # The order in which a packet meets the functions
//
// A packet that goes out meets them in this order:
//
//   - [ParseVNetHdr] reads the header that a TUN puts before every packet.
//   - [Inner.Parse] reads the IP header, and [ParseSuper] the transport header of a
//     superpacket, which is one packet that stands for several.
//   - [MartianDestination] tells whether the packet may cross the overlay at all.
//   - [DecrementTTL] applies where we are the router.
//   - [AppendICMPError] makes the answer to a packet that may not pass, and [Fragment4]
//     cuts one that is too long and may be cut.
//   - [FlowPairHash] chooses the source port, and keeps both directions of a flow together.
//   - [AppendVXLAN] writes the headers of format vxlan.
//   - [FinishChecksum] completes a checksum where nobody behind us does, and
//     [Super.AppendHeader] makes the header of every segment.
//   - [FrameTemplate.Put] writes the outer headers where we send Ethernet frames, and
//     [VNetHdr.Put] the virtio-net header before them, or [VNetHdr.PutTunnel] if the frame
//     holds a superpacket. Where we send by a UDP socket the kernel writes the outer headers.
//
// A packet that comes in meets them in this order:
//
//   - [ParseFrame] reads the outer headers where we read Ethernet frames.
//   - [ParseVXLAN] reads the headers of format vxlan, or [NextPacked] splits a datagram of
//     format ip that holds several packets.
//   - [Inner.Parse] reads the inner IP header; [MartianSource] and [MartianDestination]
//     judge its addresses.
//   - [DecapECN] combines the congestion marks of both headers, and [SetECN] writes the result.
//   - [PartialChecksum] tells whether the inner checksum is still to be completed.
//   - A [Run] joins packets of one flow in one superpacket.
//
// # Several packets in a datagram
//
// A datagram of format ip may hold more than one inner packet. Each is delimited by
// its own length, and zeros may follow the last, so that datagrams of one size can
// leave in one system call. [NextPacked] takes them apart, and [Padding] has the zeros.
// Only peers that are known to read such datagrams get them: flannel's udp backend hands
// a datagram to the kernel as one packet, so that all but the first would be lost.
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
