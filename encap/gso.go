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

// GSOKind is the kind of packet that a superpacket is segmented into. The zero GSOKind is invalid.
type GSOKind uint8

// The kinds.
const (
	_       GSOKind = iota
	GSONone         // an ordinary packet
	GSOTCP4
	GSOTCP6
	GSOUDP // over IPv4 or IPv6
)

// String returns a name for logs.
func (k GSOKind) String() string {
	switch k {
	case GSONone:
		return "none"
	case GSOTCP4:
		return "tcp4"
	case GSOTCP6:
		return "tcp6"
	case GSOUDP:
		return "udp"
	}
	return "invalid"
}

// vnetType is the kind in a virtio-net header.
func (k GSOKind) vnetType() uint8 {
	switch k {
	case GSOTCP4:
		return VNetGSOTCPv4
	case GSOTCP6:
		return VNetGSOTCPv6
	case GSOUDP:
		return VNetGSOUDPL4
	case GSONone:
	}
	return VNetGSONone
}

// Meta describes an inner packet, superpacket or not, to the port that takes it.
// Lengths and offsets are in bytes from the packet's start.
type Meta struct {
	Kind      GSOKind
	HeaderLen int // IP and transport header
	// SegmentSize is the payload of every segment but the last, which has at most as
	// much. It is 0 if Kind is GSONone.
	SegmentSize int
	// CsumStart and CsumOffset tell where the transport checksum is to be finished.
	// Both are 0 if it is complete.
	CsumStart, CsumOffset int
	Segments              int // wire packets that it stands for, at least 1
	TotalLen              int // headers and all payloads, below 65536
}

// VNetHdr returns m as a TUN wants it. A packet that is neither super nor partial
// gets the zero header.
func (m Meta) VNetHdr() VNetHdr {
	if m.CsumStart == 0 {
		return VNetHdr{}
	}
	return VNetHdr{
		Flags:      VNetNeedsCsum,
		GSOType:    m.Kind.vnetType(),
		HdrLen:     uint16(m.HeaderLen),
		GSOSize:    uint16(m.SegmentSize),
		CsumStart:  uint16(m.CsumStart),
		CsumOffset: uint16(m.CsumOffset),
	}
}
