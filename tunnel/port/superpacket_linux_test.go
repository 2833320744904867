package port

import (
	"encoding/binary"
	"testing"

	"weft/encap"
)

// TestNoPacketReachesIntoTheNextDatagram gives a socket two datagrams that the kernel has joined. The first
// has an inner packet that claims to be longer than its datagram is: it is to be refused, and not to be
// filled up with what the next datagram begins with.
func TestNoPacketReachesIntoTheNextDatagram(t *testing.T) {
	for _, head := range []int{0, encap.VXLANOverhead} {
		for _, proto := range []byte{encap.ProtoTCP, encap.ProtoUDP, encap.ProtoICMPv6} {
			for more := -1; more <= encap.VXLANOverhead+8; more++ {
				const payload = 60
				size := head + encap.IPv6Len + payload
				b := make([]byte, 2*size)
				for at := 0; at < len(b); at += size {
					p := b[at+head:]
					p[0], p[6], p[7] = 0x60, proto, 64
					binary.BigEndian.PutUint16(p[4:], payload)
				}
				binary.BigEndian.PutUint16(b[head+4:], uint16(payload+more))
				s := &sockets{head: head}
				p := NewRing().Slot()
				copy(p.Space(), b)
				if s.isSuperpacket(p, len(b), size) {
					t.Errorf("head %d, protocol %d: a packet that claims %d bytes too many is taken for a superpacket", head,
						proto, more)
				}
				if p.parsed != (more <= 0) {
					t.Errorf("head %d, protocol %d: a packet that claims %d bytes too many: parsed %v", head, proto,
						more, p.parsed)
				}
			}
		}
	}
}
