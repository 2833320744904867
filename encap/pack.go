package encap

import "fmt"

// errPacked is made once.
var errPacked = fmt.Errorf("neither an ip packet nor padding behind a packet: %w", ErrMalformed)

// NextPacked returns what follows the first packet in a datagram of FormatIP. Such
// a datagram holds one or more inner packets, each delimited by its own total
// length, and then maybe padding, zeros, that makes datagrams alike in size:
//
//	| inner packet | inner packet … | 0 0 0 … |
//
// b is what is left of the datagram, and packet the TotalLen of the inner packet at
// its start. rest begins with the version nibble of another packet, 4 or 6, and is
// yet to be parsed; it aliases b. It is empty at the end of the datagram, and where
// padding starts, which the first nibble alone tells.
//
//	for len(b) > 0 {
//		in, err := ParseInner(b)
//		…
//		b, err = NextPacked(b, in.TotalLen)
//	}
//
// The error wraps ErrMalformed if something else follows, or packet is less than 1,
// and ErrShort if packet is more than there is; rest is then empty. The packets
// before are not affected.
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

// padding is as long as a datagram can be. It is zeros, and nobody writes to it.
var padding = [maxPacket]byte{}

// Padding returns n zeros to put behind the last packet of a datagram, with writev
// or the like. All callers share the memory, so it must not be written to. Padding
// panics if n is negative or above 65535.
func Padding(n int) []byte { return padding[:n:n] }
