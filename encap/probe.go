package encap

import (
	"encoding/binary"
	"fmt"
)

// ProbeLen is a probe's length without what fills it up, and that of an answer, in bytes.
const ProbeLen = 16

// What a datagram of FormatIP with a probe begins with. A first nibble of 0 is no IP packet.
const (
	probeMagic  = 0x00775046 // the low half of the last byte is the kind
	probeAsk    = 1
	probeAnswer = 2
)

var errProbe = fmt.Errorf("not a probe: %w", ErrMalformed)

// Probe is a datagram of FormatIP that finds out what the path carries, as RFC 8899 does: zeros behind it make the
// datagram as long as what is in doubt, and who gets it says in an answer how long it was. Nodes answer that say
// so in their record; it is never sent to others.
//
//	| 00 77 50 4x | length 2 | 0 0 | token 8 | 0 0 0 … |
type Probe struct {
	Answer bool
	// Length is what an answer says has arrived, in bytes of UDP payload. A probe itself has 0.
	Length uint16
	// Token is the asker's, and comes back: who cannot guess it cannot answer in another's place.
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

// ParseProbe reads what a datagram begins with. The error wraps ErrShort or ErrMalformed.
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
