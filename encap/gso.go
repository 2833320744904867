package encap

import "encoding/binary"

// VNetHdrLen is the length in bytes of a virtio-net header without the number of buffers. A TUN with
// IFF_VNET_HDR has it before every packet by default.
const VNetHdrLen = 10

// Flags of a virtio-net header (linux/virtio_net.h).
const (
	// VNetNeedsCsum means that the checksum at CsumStart+CsumOffset is partial.
	VNetNeedsCsum = 1
	// VNetDataValid means that the checksum was verified. A TUN ignores it on write.
	VNetDataValid = 2
)

// GSO types of a virtio-net header (linux/virtio_net.h). VNetGSOECN is or-ed to a TCP type if the first
// segment has CWR.
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
	// HdrLen is the length of all headers. When read it is only a hint, and may be that of the whole first
	// packet. [ParseSuper] does not use it.
	HdrLen     uint16
	GSOSize    uint16 // payload of a segment
	CsumStart  uint16 // start of the checksummed bytes
	CsumOffset uint16 // offset of the checksum field from CsumStart
}

// Put writes h to the first VNetHdrLen bytes of b, in native byte order, as a TUN expects unless TUNSETVNETLE
// or TUNSETVNETBE was set. It panics if b is shorter.
func (h VNetHdr) Put(b []byte) {
	_ = b[VNetHdrLen-1]
	b[0], b[1] = h.Flags, h.GSOType
	binary.NativeEndian.PutUint16(b[2:], h.HdrLen)
	binary.NativeEndian.PutUint16(b[4:], h.GSOSize)
	binary.NativeEndian.PutUint16(b[6:], h.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], h.CsumOffset)
}

// ParseVNetHdr parses the header at the start of b, in native byte order. It checks no field. The error is
// ErrShort if b has fewer than VNetHdrLen bytes.
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

// GSOType returns the GSO type of superpackets of proto, TCP or UDP, over that version of IP.
func GSOType(version, proto uint8) uint8 {
	switch {
	case proto == ProtoUDP:
		return VNetGSOUDPL4
	case version == 6:
		return VNetGSOTCPv6
	}
	return VNetGSOTCPv4
}
