package probe

import (
	"bytes"
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

// head begins a datagram: "weftP" and the version.
const head = "weftP\x01"

// Datagram is what nodes of weft tell each other. Behind head it has the fields in this order, as big-endian
// numbers. What follows Size bytes is padding, or the body of an inquiry or an account.
type Datagram struct {
	Kind Kind
	// Tells says that the sender answers inquiries. Nodes of before inquiries left it 0.
	Tells bool
	// Session is drawn when a sender starts, and Theirs is the receiver's, 0 as long as it is not known:
	// sequence numbers count from 1 in each session.
	Session, Theirs uint32
	// Seq numbers the datagrams that count for the loss; 0 for one that does not, since it may be too long to
	// pass.
	Seq uint32
	// Latest is the highest Seq that the sender got in session Theirs, 0 for none, and Window which of the 64 up
	// to it: bit i for Latest-i.
	Latest uint32
	Window uint64
	// Nonce is a random number of the question, which nobody knows who has not seen it.
	Nonce uint64
	// Length is the length in bytes of the question or the inquiry, padding included.
	Length uint32
	// First is the lowest Seq that Window counts: what was sent before the sender listened is not lost.
	First uint32
}

// ErrDatagram says that bytes are none of ours.
var ErrDatagram = errors.New("no datagram of a probe")

// Append appends d, and for a question or an inquiry padding up to d.Length. It fails for what Parse would
// refuse.
func (d Datagram) Append(dst []byte) ([]byte, error) {
	if err := d.check(); err != nil {
		return dst, err
	}
	dst, err := binary.Append(append(dst, head...), binary.BigEndian, d)
	if d.asks() {
		dst = append(dst, make([]byte, d.Length-Size)...)
	}
	return dst, err
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
	var d Datagram
	fields, ours := bytes.CutPrefix(b, []byte(head))
	if _, err := binary.Decode(fields, binary.BigEndian, &d); err != nil || !ours {
		return Datagram{}, ErrDatagram
	}
	if d.asks() && int(d.Length) != len(b) {
		return Datagram{}, fmt.Errorf("%w: a question of %d bytes that says %d", ErrDatagram, len(b), d.Length)
	}
	return d, d.check()
}
