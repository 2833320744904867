package encap

import "encoding/binary"

// VNetTunnelHdrLen is the length in bytes of struct virtio_net_hdr_v1_hash_tunnel
// (linux/virtio_net.h, Linux 6.17), which TUNSETVNETHDRSZ puts before every frame
// of a TAP: ten bytes of [VNetHdr], the number of buffers, eight bytes of hash, and
// two offsets.
const VNetTunnelHdrLen = 24

// What tunnel GSO adds to a virtio-net header (linux/virtio_net.h). The type of the
// outer IP header is or-ed to that of the inner packet, which has to be one.
const (
	VNetGSOTunnel4 = 0x20
	VNetGSOTunnel6 = 0x40
	// VNetTunnelCsum is a flag: the outer UDP checksum is to be filled in too.
	VNetTunnelCsum = 8
)

// PutTunnel writes h to the first VNetTunnelHdrLen bytes of b, and panics if b is
// shorter. What it has in common with [VNetHdr.Put] is in the machine's byte order;
// the offsets behind are little-endian on every machine. Hash and number of buffers
// are 0: a TAP ignores them.
//
// outerTransport and innerNetwork are where the outer UDP and the inner IP header
// start, in bytes from the frame's start, as CsumStart and HdrLen count too. If h
// asks for no tunnel GSO, both are 0 and the header is that of an ordinary frame.
//
// A write with tunnel GSO is refused with EINVAL unless the type has one of
// VNetGSOTunnel4 and VNetGSOTunnel6 beside [VNetGSOTCPv4], [VNetGSOTCPv6] or
// [VNetGSOUDPL4], the flag VNetNeedsCsum is set with CsumStart and CsumOffset those
// of the inner packet, whose checksum is the seed, and the headers do not overlap.
// Much else that is wrong is taken, to no good:
//
//   - The outer UDP checksum. Of what [FrameTemplate.Put] and the flag can say, two
//     combinations are right, and IPv6 has only the second:
//
//     VNetTunnelCsum   seedUDP   outer UDP checksum of every segment
//     no               false     none; over IPv6 receivers drop that
//     yes              true      complete
//     yes              false     wrong
//     no               true      the seed, which is wrong
//
//   - A packet of one segment. Its payload must be more than GSOSize, or the frame
//     neither counts as GSO nor as ordinary: a TAP that it leaves at fails to read it,
//     with EINVAL, and nobody finishes the outer checksum. Write it without tunnel
//     GSO.
//
// A device that it leaves by takes the frame whole if it can, and with
// VNetTunnelCsum if it can do that too (0x80 and 0x100 of TUNSETOFFLOAD; a veth can
// both); otherwise the kernel cuts. In a whole frame the outer checksum is the seed
// still. In segments that are left with a partial inner checksum the outer one is
// complete, that is right as soon as the inner one is.
func (h VNetHdr) PutTunnel(b []byte, outerTransport, innerNetwork int) {
	b = b[:VNetTunnelHdrLen]
	clear(b[VNetHdrLen:])
	h.Put(b)
	binary.LittleEndian.PutUint16(b[20:], uint16(outerTransport))
	binary.LittleEndian.PutUint16(b[22:], uint16(innerNetwork))
}
