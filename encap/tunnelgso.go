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
// start, in bytes from the frame's start; both are 0 if h asks for no tunnel GSO.
func (h VNetHdr) PutTunnel(b []byte, outerTransport, innerNetwork int) {
	b = b[:VNetTunnelHdrLen]
	clear(b[VNetHdrLen:])
	h.Put(b)
	binary.LittleEndian.PutUint16(b[20:], uint16(outerTransport))
	binary.LittleEndian.PutUint16(b[22:], uint16(innerNetwork))
}
