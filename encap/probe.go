package encap

import (
	"encoding/binary"
	"fmt"
)

// ProbeLen is the length in bytes of an answer, and of a probe without its padding.
const ProbeLen = 16

// probeMagic starts a datagram with a probe. Its first nibble is 0, which no IP packet has.
const (
	probeMagic  = 0x00775046 // the low half of the last byte is the kind
	probeAsk    = 1
	probeAnswer = 2
	probeWhole  = 3
)

var errProbe = fmt.Errorf("not a probe: %w", ErrMalformed)

// Probe is a datagram of FormatIP that measures how large a datagram the path carries (RFC 8899). Zeros after
// it extend the datagram to the length being tested. The receiver answers with the length that arrived.
// Probes are sent only to nodes whose lease record says that they answer.
//
//	| 00 77 50 4x | length 2 | 0 0 | token 8 | 0 0 0 … |
//
// A Whole probe tests whether a datagram arrives intact. It has its own length, followed by a pattern that
// depends on the token.
type Probe struct {
	Answer, Whole bool
	// Length is 0 in a probe that is not Whole. In an answer it is the length of the probe that arrived, in
	// bytes of UDP payload.
	Length uint16
	// Token is chosen by the sender of the probe, and repeated in the answer. Only a node that knows it can
	// answer.
	Token uint64
}

// AppendProbe appends the ProbeLen bytes of p. If p is Whole it also appends the pattern, for Length bytes in
// all.
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

// patternAt returns byte i of a Whole probe.
func patternAt(token uint64, i int) byte { return byte(token>>(i%8*8)) + byte(i/8) }

// ParseProbe parses the probe or answer at the start of a datagram. A Whole probe must fill the datagram and
// be intact. The error wraps ErrShort or ErrMalformed.
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
