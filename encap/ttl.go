package encap

import "encoding/binary"

// DecrementTTL decrements the TTL or hop limit of the IP packet in b in place, and updates the IPv4 header
// checksum (RFC 1624). It returns false and changes nothing if the result would be 0 or if b has no IP
// header. A router then drops the packet (RFC 1812 §5.3.1, RFC 8200 §3).
func DecrementTTL(b []byte) bool {
	if len(b) < IPv4Len {
		return false
	}
	switch b[0] >> 4 {
	case 4:
		if b[8] <= 1 {
			return false
		}
		old := binary.BigEndian.Uint16(b[8:]) // TTL and protocol
		check := b[10:12]
		binary.BigEndian.PutUint16(check, Update16(binary.BigEndian.Uint16(check), old, old-1<<8))
		b[8]--
		return true
	case 6:
		if b[7] <= 1 {
			return false
		}
		b[7]--
		return true
	}
	return false
}
