package encap

import "encoding/binary"

// VNetTunnelHdrLen is the length in bytes of struct virtio_net_hdr_v1_hash_tunnel
// (linux/virtio_net.h, Linux 6.17), which TUNSETVNETHDRSZ puts before every frame
// of a TAP: ten bytes of [VNetHdr], the number of buffers, eight bytes of hash, and
// two offsets.
const VNetTunnelHdrLen = 24

// Tunnel GSO adds these to a virtio-net header (linux/virtio_net.h). The bit for the
// outer IP header is or-ed to the GSO type of the inner packet, which must have one.
const (
	VNetGSOTunnel4 = 0x20
	VNetGSOTunnel6 = 0x40
	// VNetTunnelCsum is a flag: the outer UDP checksum is to be filled in too.
	VNetTunnelCsum = 8
)

// PutTunnel writes h to the first VNetTunnelHdrLen bytes of b, and panics if b is
// shorter. The fields that [VNetHdr.Put] writes too are in the machine's byte order;
// the two offsets behind them are little-endian on every machine. Hash and number of
// buffers are 0: a TAP ignores them.
//
// outerTransport and innerNetwork are where the outer UDP and the inner IP header
// start, in bytes from the frame's start, as CsumStart and HdrLen count too. If h
// asks for no tunnel GSO, both are 0 and the header is that of an ordinary frame.
//
// A write with tunnel GSO is refused with EINVAL unless the type has one of
// VNetGSOTunnel4 and VNetGSOTunnel6 beside [VNetGSOTCPv4], [VNetGSOTCPv6] or
// [VNetGSOUDPL4], the flag VNetNeedsCsum is set with CsumStart and CsumOffset those
// of the inner packet, whose checksum is the seed, and the headers do not overlap.
// The kernel accepts other mistakes, and sends something useless:
//
//   - A wrong outer UDP checksum. Of the combinations of VNetTunnelCsum and the seedUDP
//     of [FrameTemplate.Put] two are right, and for IPv6 only the second is:
//
//     VNetTunnelCsum   seedUDP   outer UDP checksum of every segment
//     no               false     none; over IPv6 receivers drop that
//     yes              true      complete
//     yes              false     wrong
//     no               true      the seed, which is wrong
//
//   - A packet of one segment. Its payload must be longer than GSOSize, or the kernel
//     takes the frame for neither GSO nor ordinary: a TAP by which it leaves fails to
//     read it, with EINVAL, and nobody finishes the outer checksum. Write such a packet
//     without tunnel GSO.
//
// The device by which the frame leaves takes it whole if it can do tunnel GSO, and for
// VNetTunnelCsum also its outer checksum (0x80 and 0x100 of TUNSETOFFLOAD; a veth can do
// both); otherwise the kernel cuts it. In a whole frame the outer checksum is still the
// seed. Segments may be left with a partial inner checksum; their outer checksum is
// complete: it is right as soon as the inner one is finished.
func (h VNetHdr) PutTunnel(b []byte, outerTransport, innerNetwork int) {
	b = b[:VNetTunnelHdrLen]
	clear(b[VNetHdrLen:])
	h.Put(b)
	binary.LittleEndian.PutUint16(b[20:], uint16(outerTransport))
	binary.LittleEndian.PutUint16(b[22:], uint16(innerNetwork))
}
