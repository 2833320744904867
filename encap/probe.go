package encap

import (
	"encoding/binary"
	"fmt"
)

// ProbeLen is the length in bytes of an answer, and of a probe without its padding.
const ProbeLen = 16

// A datagram with a probe begins with probeMagic. Its first nibble is 0, which no IP packet has.
const (
	probeMagic  = 0x00775046 // the low half of the last byte is the kind
	probeAsk    = 1
	probeAnswer = 2
)

var errProbe = fmt.Errorf("not a probe: %w", ErrMalformed)

// Probe is a datagram of FormatIP that finds out how large a datagram the path carries, as RFC 8899 does: zeros
// behind it make the datagram as long as the length in doubt, and the receiver says in an answer how much arrived.
// Only a node whose record says that it answers is sent a probe.
//
//	| 00 77 50 4x | length 2 | 0 0 | token 8 | 0 0 0 … |
type Probe struct {
	Answer bool
	// Length is 0 in a probe. In an answer it is how much of the probe has arrived, in bytes of UDP payload.
	Length uint16
	// Token is chosen by the node that asks, and the answer repeats it: nobody who cannot guess it can answer in
	// another's place.
	Token uint64
}

// AppendProbe appends the ProbeLen bytes of p.
func AppendProbe(dst []byte, p Probe) []byte {
	word := uint32(probeMagic)&^0xf | probeAsk
	if p.Answer {
		word = word&^0xf | probeAnswer
	}
	dst = binary.BigEndian.AppendUint32(dst, word)
	dst = binary.BigEndian.AppendUint16(dst, p.Length)
	return binary.BigEndian.AppendUint64(append(dst, 0, 0), p.Token)
}

// ParseProbe reads the probe or the answer at the start of a datagram. The error wraps ErrShort or ErrMalformed.
func ParseProbe(b []byte) (Probe, error) {
	if len(b) < ProbeLen {
		return Probe{}, ErrShort
	}
	word := binary.BigEndian.Uint32(b)
	kind := word & 0xf
	if word&^0xf != probeMagic&^0xf || kind != probeAsk && kind != probeAnswer || b[6] != 0 || b[7] != 0 {
		return Probe{}, errProbe
	}
	return Probe{Answer: kind == probeAnswer, Length: binary.BigEndian.Uint16(b[4:]), Token: binary.BigEndian.Uint64(b[8:])}, nil
}
