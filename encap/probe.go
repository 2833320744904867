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
	probeWhole  = 3
)

var errProbe = fmt.Errorf("not a probe: %w", ErrMalformed)

// Probe is a datagram of FormatIP that finds out how large a datagram the path carries, as RFC 8899 does:
// zeros behind it make the datagram as long as the length in doubt, and the receiver says in an answer how
// much arrived. Only a node whose record says that it answers is sent a probe.
//
//	| 00 77 50 4x | length 2 | 0 0 | token 8 | 0 0 0 … |
//
// A probe that is Whole asks whether a datagram arrives as it was sent. It says its own length, and a pattern
// that differs from token to token follows.
type Probe struct {
	Answer, Whole bool
	// Length is 0 in a probe that is not Whole. In an answer it is how much of the probe has arrived, in bytes
	// of UDP payload.
	Length uint16
	// Token is chosen by the node that asks, and repeated in the answer. Nobody who does not know it can
	// answer in another's place.
	Token uint64
}

// AppendProbe appends the ProbeLen bytes of p, and its pattern if it is Whole: Length bytes in all.
func AppendProbe(dst []byte, p Probe) []byte {
	word := uint32(probeMagic)&^0xf | probeAsk
	switch {
	case p.Answer:
		word = word&^0xf | probeAnswer
	case p.Whole:
		word = word&^0xf | probeWhole
	}
	dst = binary.BigEndian.AppendUint32(dst, word)
	dst = binary.BigEndian.AppendUint16(dst, p.Length)
	dst = binary.BigEndian.AppendUint64(append(dst, 0, 0), p.Token)
	if p.Whole {
		for i := ProbeLen; i < int(p.Length); i++ {
			dst = append(dst, patternAt(p.Token, i))
		}
	}
	return dst
}

// patternAt is the byte at place i of a probe that is Whole.
func patternAt(token uint64, i int) byte { return byte(token>>(i%8*8)) + byte(i/8) }

// ParseProbe reads the probe or the answer at the start of a datagram. A probe that is Whole has to fill it,
// and to be as it was sent. The error wraps ErrShort or ErrMalformed.
func ParseProbe(b []byte) (Probe, error) {
	if len(b) < ProbeLen {
		return Probe{}, ErrShort
	}
	word := binary.BigEndian.Uint32(b)
	kind := word & 0xf
	if word&^0xf != probeMagic&^0xf || kind < probeAsk || kind > probeWhole || b[6] != 0 || b[7] != 0 {
		return Probe{}, errProbe
	}
	p := Probe{
		Answer: kind == probeAnswer, Whole: kind == probeWhole,
		Length: binary.BigEndian.Uint16(b[4:]), Token: binary.BigEndian.Uint64(b[8:]),
	}
	if p.Whole {
		if int(p.Length) != len(b) {
			return Probe{}, errProbe
		}
		for i, c := range b[ProbeLen:] {
			if c != patternAt(p.Token, ProbeLen+i) {
				return Probe{}, errProbe
			}
		}
	}
	return p, nil
}
