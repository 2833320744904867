package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Size is the length of an answer, and the least of a question, in bytes. A question may be longer, by zeros,
// to try how much the way carries; so an answer is never longer than its question.
const Size = 48

// MaxSize is the length of the longest question, in bytes: what a UDP datagram holds.
const MaxSize = 65507

// Kind says what a datagram is.
type Kind uint8

// The kinds. An answer repeats the question's Nonce, and an account the inquiry's. A node drops kinds that it
// does not know: nodes of before inquiries know the first two.
const (
	_ Kind = iota
	Question
	Answer
	Inquiry
	Account
)

// Datagram is what nodes of weft tell each other. Numbers are big-endian; what follows Size bytes is padding,
// or the body of an inquiry or an account.
//
//	 0  "weftP", version (1), kind, flags: 1 if the sender gives accounts, which nodes of before left 0
//	 8  session of the sender, session of the receiver as the sender knows it
//	16  sequence number of the sender, latest one that it got
//	24  window: bit i is set if it got the latest but i
//	32  nonce
//	40  length of the question, in bytes, as sent or as it arrived
//	44  lowest sequence number that the window counts
type Datagram struct {
	Kind Kind
	// Tells says that the sender answers inquiries.
	Tells bool
	// Session is drawn when a sender starts, and Theirs is the receiver's, 0 as long as it is not known:
	// sequence numbers count from 1 in each session.
	Session, Theirs uint32
	// Seq numbers the datagrams that count for the loss; 0 for one that does not, since it may be too long to
	// pass.
	Seq uint32
	// Latest is the highest Seq that the sender got in session Theirs, 0 for none, and Window which of the 64 up
	// to it: bit i for Latest-i. First is the lowest that counts: what was sent before the sender listened is
	// not lost.
	Latest, First uint32
	Window        uint64
	// Nonce is a random number of the question, which nobody knows who has not seen it.
	Nonce uint64
	// Length is the length in bytes of the question or the inquiry, padding included.
	Length int
}

const (
	magic, version = "weftP", 1
	flagTells      = 1
)

// ErrDatagram says that bytes are none of ours.
var ErrDatagram = errors.New("no datagram of a probe")

// Append appends d, and for a question or an inquiry padding up to d.Length. It fails for what Parse would
// refuse.
func (d Datagram) Append(dst []byte) ([]byte, error) {
	if err := d.check(); err != nil {
		return dst, err
	}
	flags := byte(0)
	if d.Tells {
		flags = flagTells
	}
	dst = append(dst, magic...)
	dst = append(dst, version, byte(d.Kind), flags)
	for _, n := range []uint32{d.Session, d.Theirs, d.Seq, d.Latest} {
		dst = binary.BigEndian.AppendUint32(dst, n)
	}
	dst = binary.BigEndian.AppendUint64(dst, d.Window)
	dst = binary.BigEndian.AppendUint64(dst, d.Nonce)
	dst = binary.BigEndian.AppendUint32(dst, uint32(d.Length))
	dst = binary.BigEndian.AppendUint32(dst, d.First)
	if d.asks() {
		dst = append(dst, make([]byte, d.Length-Size)...)
	}
	return dst, nil
}

// asks reports whether the datagram is one that asks for another, which is not longer.
func (d Datagram) asks() bool { return d.Kind == Question || d.Kind == Inquiry }

func (d Datagram) check() error {
	switch {
	case d.Kind < Question || d.Kind > Account:
		return fmt.Errorf("%w: kind %d", ErrDatagram, d.Kind)
	case d.Session == 0:
		return fmt.Errorf("%w: no session", ErrDatagram)
	case d.Length < Size || d.Length > MaxSize:
		return fmt.Errorf("%w: a question of %d bytes", ErrDatagram, d.Length)
	}
	return nil
}

// Parse reads a datagram. It ignores padding, and bytes behind an answer. The error wraps ErrDatagram.
func Parse(b []byte) (Datagram, error) {
	if len(b) < Size || string(b[:5]) != magic || b[5] != version {
		return Datagram{}, ErrDatagram
	}
	d := Datagram{
		Kind: Kind(b[6]), Tells: b[7]&flagTells != 0, Session: binary.BigEndian.Uint32(b[8:]),
		Theirs: binary.BigEndian.Uint32(b[12:]),
		Seq:    binary.BigEndian.Uint32(b[16:]), Latest: binary.BigEndian.Uint32(b[20:]),
		Window: binary.BigEndian.Uint64(b[24:]),
		Nonce:  binary.BigEndian.Uint64(b[32:]), Length: int(min(binary.BigEndian.Uint32(b[40:]), MaxSize+1)),
		First: binary.BigEndian.Uint32(b[44:]),
	}
	if d.asks() && d.Length != len(b) {
		return Datagram{}, fmt.Errorf("%w: a question of %d bytes that says %d", ErrDatagram, len(b), d.Length)
	}
	return d, d.check()
}
