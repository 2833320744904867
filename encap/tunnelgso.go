package encap

import "encoding/binary"

// VNetTunnelHdrLen is the length in bytes of struct virtio_net_hdr_v1_hash_tunnel (linux/virtio_net.h, Linux
// 6.17), which TUNSETVNETHDRSZ selects for the frames of a TAP. It has the ten bytes of [VNetHdr], the number
// of buffers, eight bytes of hash, and two offsets.
const VNetTunnelHdrLen = 24

// Values that tunnel GSO adds to a virtio-net header (linux/virtio_net.h). The bit of the outer IP version is
// or-ed to the GSO type of the inner packet.
const (
	VNetGSOTunnel4 = 0x20
	VNetGSOTunnel6 = 0x40
	// VNetTunnelCsum is a flag: the kernel or device completes the outer UDP checksum, too.
	VNetTunnelCsum = 8
)

// PutTunnel writes h to the first VNetTunnelHdrLen bytes of b, and panics if b is shorter. The fields of
// [VNetHdr.Put] are in native byte order; the two offsets are little-endian on every machine. Hash and number
// of buffers are 0, because a TAP ignores them.
//
// outerTransport and innerNetwork are the offsets of the outer UDP and the inner IP header in the frame, in
// bytes. CsumStart and HdrLen are offsets in the frame, too. Without tunnel GSO, both offsets are 0 and the
// header describes an ordinary frame.
//
// The kernel rejects a write with tunnel GSO with EINVAL unless all of these hold: the type has
// VNetGSOTunnel4 or VNetGSOTunnel6, and [VNetGSOTCPv4], [VNetGSOTCPv6] or [VNetGSOUDPL4]; VNetNeedsCsum is
// set, with the CsumStart and CsumOffset of the inner packet, whose checksum is the seed; and the headers do
// not overlap. The kernel accepts these other mistakes, and sends invalid packets:
//
//   - A wrong outer UDP checksum. Only the first two combinations of VNetTunnelCsum and the seedUDP of
//     [FrameTemplate.Put] are right, and only the second for IPv6:
//
//     VNetTunnelCsum   seedUDP   outer UDP checksum of every segment
//     no               false     none; IPv6 receivers drop the datagram
//     yes              true      complete
//     yes              false     wrong
//     no               true      the seed, which is wrong
//
//   - A packet of one segment. Its payload must be longer than GSOSize. Otherwise the kernel handles the
//     frame neither as GSO nor as an ordinary frame: reading it from another TAP fails with EINVAL, and the
//     outer checksum is not completed. Write such a packet without tunnel GSO.
//
// A device that supports tunnel GSO sends the frame whole; with VNetTunnelCsum it must also support the outer
// checksum (0x80 and 0x100 of TUNSETOFFLOAD; a veth supports both). Otherwise the kernel segments the frame.
// In a whole frame the outer checksum is still the seed. The inner checksums of segments may be partial.
// Their outer checksum is complete: it is right once the inner one is completed.
func (h VNetHdr) PutTunnel(b []byte, outerTransport, innerNetwork int) {
	b = b[:VNetTunnelHdrLen]
	clear(b[VNetHdrLen:])
	h.Put(b)
	binary.LittleEndian.PutUint16(b[20:], uint16(outerTransport))
	binary.LittleEndian.PutUint16(b[22:], uint16(innerNetwork))
}
