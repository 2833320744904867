// Package encap implements the wire formats: encapsulation and decapsulation of inner IP packets, with the
// checksums, lengths and congestion marks that they change. Its functions are pure functions over byte
// slices. They do no I/O, start no goroutines and keep no state. They allocate only if the destination of an
// append lacks capacity. All are safe for concurrent use on distinct slices.
//
// This is one packet. The numbers above it are offsets from the start of the outer IP header, in bytes. The
// numbers between the bars are lengths:
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
// The overhead counts from the outer IP header, as the MTU of the underlay does. It does not include the
// underlay's own Ethernet header.
//
// # Order of the functions
//
// An egress packet passes through these functions in order:
//
//   - [ParseVNetHdr] parses the header that a TUN puts before every packet.
//   - [Inner.Parse] parses the IP header, and [ParseSuper] the transport header of a superpacket, which is
//     one packet that stands for several.
//   - [MartianDestination] reports whether the destination cannot be reached through the overlay.
//   - [DecrementTTL] is for packets that this node routes.
//   - [AppendICMPError] makes the ICMP error about a packet that is dropped, and [Fragment4] fragments a
//     packet that is too large.
//   - [FlowPairHash] selects the source port, and keeps both directions of a flow together.
//   - [AppendVXLAN] writes the headers of format vxlan.
//   - [FinishChecksum] completes a partial checksum that nobody completes later. [Super.AppendHeader] makes
//     the headers of segments.
//   - [FrameTemplate.Put] writes the outer headers of Ethernet frames, and [VNetHdr.Put] the virtio-net
//     header before them, or [VNetHdr.PutTunnel] if the frame has a superpacket. With a UDP socket the kernel
//     writes the outer headers.
//
// An ingress packet passes through these functions in order:
//
//   - [ParseFrame] parses the outer headers of Ethernet frames.
//   - [ParseVXLAN] parses the headers of format vxlan, or [NextPacked] splits a datagram of format ip with
//     several packets.
//   - [Inner.Parse] parses the inner IP header. [MartianSource] and [MartianDestination] check its addresses.
//   - [DecapECN] combines the congestion marks of both headers, and [SetECN] writes the result.
//   - [PartialChecksum] reports whether the inner checksum is partial.
//   - A [Run] coalesces packets of one flow into one superpacket.
//
// # Several packets in a datagram
//
// A datagram of format ip may have more than one inner packet. The length of each is in its header. Zeros may
// follow the last, so that datagrams of one size can be sent in one system call. [NextPacked] splits the
// datagram, and [Padding] has the zeros. Only peers that can split such datagrams get them: flannel's udp
// backend would write a datagram to its TUN as one packet, and lose all but the first.
//
// # Headroom
//
// The append functions write in place if they get the free bytes before a packet. With the inner packet at
// buf[off:end],
//
//	AppendVXLAN(buf[off-VXLANOverhead:off-VXLANOverhead], h)
//
// encapsulates it without moving it, and buf[off-VXLANOverhead:end] is the payload
// of the datagram.
//
// # Errors
//
// Parsers return errors that wrap [ErrShort] or [ErrMalformed]; the other
// Parsers return errors that wrap [ErrShort] or [ErrMalformed]. Each function documents its other errors. All
// are preallocated, so that a flood of invalid packets allocates nothing.
package encap
