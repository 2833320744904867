package encap

import "fmt"

var errPacked = fmt.Errorf("neither an ip packet nor padding behind a packet: %w", ErrMalformed)

// NextPacked returns the bytes after the first packet in a datagram of FormatIP. Such a datagram has one or
// more inner packets, each with its total length in its header. Padding with zeros may follow:
//
//	| inner packet | inner packet … | 0 0 0 … |
//
// b is the rest of the datagram, and packet the TotalLen of the inner packet at its start. rest starts with
// the version nibble of another packet, 4 or 6, and aliases b. The caller must still parse it. rest is empty
// at the end of the datagram, and if padding follows.
//
//	for len(b) > 0 {
//		in, err := ParseInner(b)
//		…
//		b, err = NextPacked(b, in.TotalLen)
//	}
//
// The error wraps ErrMalformed if other bytes follow or if packet is less than 1, and ErrShort if packet
// exceeds len(b). rest is then empty. The packets before are not affected.
func NextPacked(b []byte, packet int) (rest []byte, err error) {
	if packet > len(b) {
		return nil, ErrShort
	}
	if packet < 1 {
		return nil, errPacked
	}
	rest = b[packet:]
	if len(rest) == 0 {
		return nil, nil
	}
	switch rest[0] >> 4 {
	case 4, 6:
		return rest, nil
	case 0:
		return nil, nil
	}
	return nil, errPacked
}

// padding is as long as the longest datagram. Nothing writes to it.
var padding = [maxPacket]byte{}

// Padding returns n zeros to append to a datagram, with writev or the like. All callers share the memory and
// must not write to it. Padding panics if n is negative or above 65535.
func Padding(n int) []byte { return padding[:n:n] }
