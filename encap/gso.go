package encap

import "encoding/binary"

// VNetHdrLen is the length in bytes of a virtio-net header without the number of
// buffers: what a TUN with IFF_VNET_HDR has before every packet by default.
const VNetHdrLen = 10

// Flags of a virtio-net header (linux/virtio_net.h).
const (
	// VNetNeedsCsum says that the checksum at CsumStart+CsumOffset is only seeded.
	VNetNeedsCsum = 1
	// VNetDataValid says that the checksum was verified. A TUN ignores it on write.
	VNetDataValid = 2
)

// GSO types of a virtio-net header (linux/virtio_net.h). VNetGSOECN is or-ed to a
// TCP type if the first segment carries CWR.
const (
	VNetGSONone  = 0
	VNetGSOTCPv4 = 1
	VNetGSOUDP   = 3 // UDP fragmentation, which Linux no longer makes
	VNetGSOTCPv6 = 4
	VNetGSOUDPL4 = 5 // UDP datagrams of one size, over IPv4 or IPv6
	VNetGSOECN   = 0x80
)

// VNetHdr is struct virtio_net_hdr of linux/virtio_net.h. Lengths and offsets are
// in bytes from the packet's start.
type VNetHdr struct {
	Flags   uint8
	GSOType uint8
	// HdrLen is the length of all headers. On read it is a hint, and may be that of
	// a whole first packet: do not rely on it, [ParseSuper] does not ask for it.
	HdrLen     uint16
	GSOSize    uint16 // payload of a segment
	CsumStart  uint16 // where checksumming begins
	CsumOffset uint16 // of the checksum field, from CsumStart
}

// Put writes h to the first VNetHdrLen bytes of b, in the machine's byte order,
// which is what a TUN takes unless TUNSETVNETLE or TUNSETVNETBE was set. It
// panics if b is shorter.
func (h VNetHdr) Put(b []byte) {
	_ = b[VNetHdrLen-1]
	b[0], b[1] = h.Flags, h.GSOType
	binary.NativeEndian.PutUint16(b[2:], h.HdrLen)
	binary.NativeEndian.PutUint16(b[4:], h.GSOSize)
	binary.NativeEndian.PutUint16(b[6:], h.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], h.CsumOffset)
}

// ParseVNetHdr reads the header at the start of b, in the machine's byte order. It
// checks no field. The error is ErrShort if b has fewer than VNetHdrLen bytes.
func ParseVNetHdr(b []byte) (VNetHdr, error) {
	if len(b) < VNetHdrLen {
		return VNetHdr{}, ErrShort
	}
	return VNetHdr{
		Flags:      b[0],
		GSOType:    b[1],
		HdrLen:     binary.NativeEndian.Uint16(b[2:]),
		GSOSize:    binary.NativeEndian.Uint16(b[4:]),
		CsumStart:  binary.NativeEndian.Uint16(b[6:]),
		CsumOffset: binary.NativeEndian.Uint16(b[8:]),
	}, nil
}

// GSOType is the type of superpackets of proto, which is TCP or UDP, over that version of IP.
func GSOType(version, proto uint8) uint8 {
	switch {
	case proto == ProtoUDP:
		return VNetGSOUDPL4
	case version == 6:
		return VNetGSOTCPv6
	}
	return VNetGSOTCPv4
}
