package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// An inquiry asks a node what it knows of its peers, and an account is a page of the answer. The account is
// never longer than the inquiry, which is padded, so that nobody gets more sent than he sends. Both begin
// with a Datagram, of Size bytes, and go on with the structs below, in big-endian numbers: an inquiry with
// an inquiryBody, an account with an accountBody and its entries.

// accountForm is the version of both bodies.
const accountForm = 1

type inquiryBody struct {
	Form uint8
	Only bool // only what is not well is asked for
	_    uint16
	From uint32 // place of the first way to look at
}

type accountBody struct {
	Form    uint8
	Only    bool // as asked for
	Entries uint16
	From    uint32 // as asked for
	Next    uint32 // place to go on from, 0 if there is no more
	// Of is how many ways there are. Answering, Silent and Lossy are how many of these answer, do not answer,
	// and answer but lose packets.
	Of, Answering, Silent, Lossy uint32
	Generation                   uint32 // while it is the same, so are the places
}

type entry struct {
	Addr    [16]byte // an IPv4 one mapped
	Flags   uint8
	Out, In uint8 // loss in percent, or unknownLoss
	Silence Silence
	RTT     uint32 // in microseconds, 0 for unknown
	For     uint32 // for how many seconds it has answered, or not
	PathMTU uint16 // largest inner packet that passed, in bytes, 0 for none
	_       uint16
}

// The flags of an entry.
const (
	entryYes   = 1 << iota // answers
	entryNo                // does not
	entryLossy             // loses packets
	entryHole              // gets no large ones
	entryICMP              // is asked by ICMP
	entryHeard             // is heard
)

const (
	inquirySize  = Size + 8
	accountSize  = Size + 32
	entrySize    = 32
	unknownLoss  = 255
	leastInquiry = accountSize + entrySize // a shorter one has no room for an entry
)

// Cell is what one node knows of one address of another.
type Cell struct {
	// Peer is the node's identity as in Way, "" if this node knows of none with that address. Here says that it
	// is this node.
	Peer string
	Here bool
	Addr netip.Addr
	// ByICMP says that it is asked by ICMP.
	ByICMP  bool
	Answers Answers
	// For is how long Answers has been so.
	For time.Duration
	// RTT is the smoothed round trip, 0 if unknown. Out and In are the loss in percent, -1 if unknown; with ICMP
	// only Out is used, for both.
	RTT     time.Duration
	Out, In int
	// Lossy, Hole and PathMTU are as in State. Heard says that datagrams of it arrived, since it does not
	// answer.
	Lossy, Hole, Heard bool
	PathMTU            int
	// Silence says what of it answers, if it does not.
	Silence Silence
}

// Troubled reports whether something is wrong with the way.
func (c *Cell) Troubled() bool { return c.Answers == No || c.Lossy || c.Hole }

func (c *Cell) entry() entry {
	e := entry{Addr: c.Addr.As16(), Out: lossByte(c.Out), In: lossByte(c.In), Silence: c.Silence,
		RTT: clamp(c.RTT / time.Microsecond), For: clamp(c.For / time.Second),
		PathMTU: uint16(min(max(c.PathMTU, 0), 1<<16-1))}
	for flag, on := range map[uint8]bool{entryYes: c.Answers == Yes, entryNo: c.Answers == No,
		entryLossy: c.Lossy, entryHole: c.Hole, entryICMP: c.ByICMP, entryHeard: c.Heard} {
		if on {
			e.Flags |= flag
		}
	}
	return e
}

func lossByte(percent int) uint8 {
	if percent < 0 || percent > 100 {
		return unknownLoss
	}
	return uint8(percent)
}

// clamp makes 32 bits of a time that may be too long for them.
func clamp(d time.Duration) uint32 { return uint32(min(max(d, 0), 1<<32-1)) }

// cell is what the entry says. The error wraps ErrDatagram.
func (e entry) cell() (Cell, error) {
	has := func(flag uint8) bool { return e.Flags&flag != 0 }
	c := Cell{
		Addr: netip.AddrFrom16(e.Addr).Unmap(), ByICMP: has(entryICMP), Lossy: has(entryLossy),
		Hole: has(entryHole), Heard: has(entryHeard), Silence: e.Silence, Out: int(e.Out), In: int(e.In),
		RTT: time.Duration(e.RTT) * time.Microsecond, For: time.Duration(e.For) * time.Second,
		PathMTU: int(e.PathMTU),
	}
	switch {
	case has(entryYes) && has(entryNo):
		return Cell{}, fmt.Errorf("%w: %v answers and does not", ErrDatagram, c.Addr)
	case has(entryYes):
		c.Answers = Yes
	case has(entryNo):
		c.Answers = No
	}
	for _, percent := range []*int{&c.Out, &c.In} {
		if *percent == unknownLoss {
			*percent = -1
		} else if *percent > 100 {
			return Cell{}, fmt.Errorf("%w: %d percent lost", ErrDatagram, *percent)
		}
	}
	if c.Silence >= silences { // of a later version
		c.Silence = NoSilence
	}
	return c, nil
}

// put writes the body into an inquiry that Datagram.Append has made, of inquirySize at the least.
func (q inquiryBody) put(b []byte) {
	q.Form = accountForm
	_, _ = binary.Encode(b[Size:], binary.BigEndian, q) // there is room
}

// parseInquiry reads the body of an inquiry. The error wraps ErrDatagram.
func parseInquiry(b []byte) (q inquiryBody, err error) {
	if len(b) < leastInquiry {
		return q, fmt.Errorf("%w: an inquiry of %d bytes", ErrDatagram, len(b))
	}
	if _, err = binary.Decode(b[Size:], binary.BigEndian, &q); err == nil && q.Form != accountForm {
		err = fmt.Errorf("%w: an inquiry of form %d", ErrDatagram, q.Form)
	}
	return q, err
}

// account is a page of what a node knows of its ways to peers.
type account struct {
	accountBody
	cells []Cell
}

// append appends the body and its entries.
func (a *account) append(dst []byte) []byte {
	a.Form, a.Entries = accountForm, uint16(len(a.cells))
	dst, _ = binary.Append(dst, binary.BigEndian, a.accountBody) // of a fixed size
	for i := range a.cells {
		dst, _ = binary.Append(dst, binary.BigEndian, a.cells[i].entry())
	}
	return dst
}

// parseAccount reads the body of an account, which begins with a Datagram. It is refused as a whole if
// anything of it cannot be so: the error wraps ErrDatagram.
func parseAccount(b []byte) (a account, err error) {
	if len(b) < accountSize {
		return account{}, fmt.Errorf("%w: an account of %d bytes", ErrDatagram, len(b))
	}
	if _, err := binary.Decode(b[Size:], binary.BigEndian, &a.accountBody); err != nil {
		return account{}, err
	}
	switch {
	case a.Form != accountForm:
		return account{}, fmt.Errorf("%w: an account of form %d", ErrDatagram, a.Form)
	case len(b) != accountSize+int(a.Entries)*entrySize:
		return account{}, fmt.Errorf("%w: an account of %d bytes with %d entries", ErrDatagram, len(b), a.Entries)
	case a.Next != 0 && a.Next <= a.From:
		return account{}, fmt.Errorf("%w: an account from %d that goes on at %d", ErrDatagram, a.From, a.Next)
	case uint64(a.Answering)+uint64(a.Silent) > uint64(a.Of) || a.Lossy > a.Answering:
		return account{}, fmt.Errorf("%w: of %d ways %d answer, %d do not and %d lose packets", ErrDatagram, a.Of,
			a.Answering, a.Silent, a.Lossy)
	}
	entries := make([]entry, a.Entries)
	if _, err := binary.Decode(b[accountSize:], binary.BigEndian, entries); err != nil {
		return account{}, err
	}
	for _, e := range entries {
		c, err := e.cell()
		if err != nil {
			return account{}, err
		}
		a.cells = append(a.cells, c)
	}
	return a, nil
}
