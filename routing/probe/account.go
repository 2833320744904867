package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// An inquiry asks a node what it knows of its peers, and an account is a page of the answer. The account is
// never longer than the inquiry, which is padded, so that nobody gets more sent than he sends. Both begin
// with a Datagram, of Size bytes. Numbers are big-endian.
//
// The inquiry's body:
//
//	48  form (1), flags: 1 if only what is not well is asked for, 0, 0
//	52  place of the first way to look at
//
// The account's body, and then its entries:
//
//	48  form (1), flags as asked for, number of entries (16 bits)
//	52  place of the first way looked at, as asked for
//	56  place to go on from, 0 if there is no more
//	60  how many ways there are, how many of these answer, do not answer, and answer but lose packets
//	76  generation: while it is the same, so are the places
//
// An entry:
//
//	 0  address, an IPv4 one mapped
//	16  flags: 1 answers, 2 does not, 4 loses packets, 8 gets no large ones, 16 asked by ICMP, 32 heard of
//	17  loss to it and from it, in percent, 255 for unknown
//	19  kind of silence
//	20  round trip in microseconds, 0 for unknown
//	24  for how many seconds it has answered, or not
//	28  largest inner packet that passed, in bytes, 0 for none (16 bits)
//	30  0, 0
const (
	accountForm  = 1
	inquirySize  = Size + 8
	accountSize  = Size + 32
	entrySize    = 32
	onlyUnwell   = 1
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

// The flags of an entry, in this order.
const (
	entryYes = 1 << iota
	entryNo
	entryLossy
	entryHole
	entryICMP
	entryHeard
)

// append appends the entry of c.
func (c *Cell) append(dst []byte) []byte {
	flags := byte(0)
	for i, on := range [...]bool{c.Answers == Yes, c.Answers == No, c.Lossy, c.Hole, c.ByICMP, c.Heard} {
		// as the constants
		if on {
			flags |= 1 << i
		}
	}
	share := func(percent int) byte {
		if percent < 0 || percent > 100 {
			return unknownLoss
		}
		return byte(percent)
	}
	a := c.Addr.As16()
	dst = append(append(dst, a[:]...), flags, share(c.Out), share(c.In), byte(c.Silence))
	dst = binary.BigEndian.AppendUint32(dst, clamp(c.RTT/time.Microsecond))
	dst = binary.BigEndian.AppendUint32(dst, clamp(c.For/time.Second))
	dst = binary.BigEndian.AppendUint16(dst, uint16(min(max(c.PathMTU, 0), 65535)))
	return append(dst, 0, 0)
}

// clamp makes 32 bits of a number that may be too large for them.
func clamp[N ~int64 | ~int](n N) uint32 { return uint32(min(max(int64(n), 0), 1<<32-1)) }

// parseEntry reads an entry. The error wraps ErrDatagram.
func parseEntry(b []byte) (Cell, error) {
	flags := b[16]
	c := Cell{
		Addr: netip.AddrFrom16([16]byte(b[:16])).Unmap(), ByICMP: flags&entryICMP != 0,
		Lossy: flags&entryLossy != 0, Hole: flags&entryHole != 0, Heard: flags&entryHeard != 0,
		Silence: Silence(b[19]), RTT: time.Duration(binary.BigEndian.Uint32(b[20:])) * time.Microsecond,
		For:     time.Duration(binary.BigEndian.Uint32(b[24:])) * time.Second,
		PathMTU: int(binary.BigEndian.Uint16(b[28:])),
	}
	switch flags & (entryYes | entryNo) {
	case entryYes:
		c.Answers = Yes
	case entryNo:
		c.Answers = No
	case 0:
	default:
		return Cell{}, fmt.Errorf("%w: %v answers and does not", ErrDatagram, c.Addr)
	}
	for _, l := range []struct {
		b  byte
		to *int
	}{{b[17], &c.Out}, {b[18], &c.In}} {
		switch *l.to = int(l.b); {
		case l.b == unknownLoss:
			*l.to = -1
		case l.b > 100:
			return Cell{}, fmt.Errorf("%w: %d percent lost", ErrDatagram, l.b)
		}
	}
	if c.Silence >= silences { // of a later version
		c.Silence = NoSilence
	}
	return c, nil
}

// inquiryBody is what an inquiry asks for.
type inquiryBody struct {
	only bool
	from uint32
}

// put writes the body into an inquiry that Datagram.Append has made, of inquirySize at the least.
func (q inquiryBody) put(b []byte) {
	b[Size] = accountForm
	if q.only {
		b[Size+1] = onlyUnwell
	}
	binary.BigEndian.PutUint32(b[Size+4:], q.from)
}

// parseInquiry reads the body of an inquiry. The error wraps ErrDatagram.
func parseInquiry(b []byte) (inquiryBody, error) {
	if len(b) < leastInquiry {
		return inquiryBody{}, fmt.Errorf("%w: an inquiry of %d bytes", ErrDatagram, len(b))
	}
	if b[Size] != accountForm {
		return inquiryBody{}, fmt.Errorf("%w: an inquiry of form %d", ErrDatagram, b[Size])
	}
	return inquiryBody{b[Size+1]&onlyUnwell != 0, binary.BigEndian.Uint32(b[Size+4:])}, nil
}

// account is a page of what a node knows of its ways to peers.
type account struct {
	only                               bool
	from, next                         uint32
	of, answering, silent, lossy, made uint32 // made is the generation
	cells                              []Cell
}

// append appends the body and its entries.
func (a *account) append(dst []byte) []byte {
	flags := byte(0)
	if a.only {
		flags = onlyUnwell
	}
	dst = binary.BigEndian.AppendUint16(append(dst, accountForm, flags), uint16(len(a.cells)))
	for _, n := range []uint32{a.from, a.next, a.of, a.answering, a.silent, a.lossy, a.made} {
		dst = binary.BigEndian.AppendUint32(dst, n)
	}
	for i := range a.cells {
		dst = a.cells[i].append(dst)
	}
	return dst
}

// parseAccount reads the body of an account, which begins with a Datagram. It is refused as a whole if
// anything of it cannot be so: the error wraps ErrDatagram.
func parseAccount(b []byte) (account, error) {
	if len(b) < accountSize {
		return account{}, fmt.Errorf("%w: an account of %d bytes", ErrDatagram, len(b))
	}
	n := int(binary.BigEndian.Uint16(b[Size+2:]))
	switch {
	case b[Size] != accountForm:
		return account{}, fmt.Errorf("%w: an account of form %d", ErrDatagram, b[Size])
	case len(b) != accountSize+n*entrySize:
		return account{}, fmt.Errorf("%w: an account of %d bytes with %d entries", ErrDatagram, len(b), n)
	}
	a := account{only: b[Size+1]&onlyUnwell != 0, cells: make([]Cell, 0, n)}
	for i, to := range []*uint32{&a.from, &a.next, &a.of, &a.answering, &a.silent, &a.lossy, &a.made} {
		*to = binary.BigEndian.Uint32(b[Size+4+4*i:])
	}
	switch {
	case a.next != 0 && a.next <= a.from:
		return account{}, fmt.Errorf("%w: an account from %d that goes on at %d", ErrDatagram, a.from, a.next)
	case uint64(a.answering)+uint64(a.silent) > uint64(a.of) || a.lossy > a.answering:
		return account{}, fmt.Errorf("%w: of %d ways %d answer, %d do not and %d lose packets", ErrDatagram, a.of,
			a.answering, a.silent, a.lossy)
	}
	for rest := b[accountSize:]; len(rest) > 0; rest = rest[entrySize:] {
		c, err := parseEntry(rest)
		if err != nil {
			return account{}, err
		}
		a.cells = append(a.cells, c)
	}
	return a, nil
}
