// Package pcapng writes and reads captures in the format of Wireshark (draft-ietf-opsawg-pcapng), as far as weft capture needs
// it: packets with a direction and with comments, which begin with the IP header. There is one interface, since libpcap, and so
// tcpdump, refuses several of the type LINKTYPE_RAW. Blocks of other writers are skipped.
package pcapng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Types of blocks, and codes of options.
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	optionEnd     = 0
	optionComment = 1
	// of a section
	optionApplication = 4
	// of an interface
	optionName, optionDescription, optionResolution, optionFilter = 2, 3, 9, 11
	// of a packet
	optionFlags = 2
	// of statistics
	optionReceived, optionDropped = 4, 5
)

const (
	byteOrder  = 0x1a2b3c4d
	linkRaw    = 101     // LINKTYPE_RAW: an IPv4 or IPv6 packet
	nanosecond = 9       // powers of ten
	maxBlock   = 1 << 20 // bytes of a block that is read
)

// Interface is where packets were seen.
type Interface struct {
	Name, Description, Filter string
	// SnapLen is the most bytes of a packet that are kept.
	SnapLen int
}

// Direction is which way a packet went.
type Direction uint8

// The directions.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// Packet is one captured packet.
type Packet struct {
	Time      time.Time
	Direction Direction
	Comments  []string
	// Length is that of the packet in bytes, Data what was kept of it.
	Length int
	Data   []byte
}

// Statistics say how complete a capture is.
type Statistics struct {
	// Received packets were taken, and Missed would have been if the reader had been faster.
	Received, Missed uint64
}

// Writer writes a capture, one call of Write of the underlying writer for each block. It is for one goroutine.
type Writer struct {
	w   io.Writer
	buf []byte
}

// NewWriter writes what comes before the first packet.
func NewWriter(w io.Writer, application string, i Interface) (*Writer, error) {
	x := &Writer{w: w}
	x.begin(blockSection)
	x.u32(byteOrder)
	x.u16(1) // the version of the format: 1.0
	x.u16(0)
	x.buf = binary.LittleEndian.AppendUint64(x.buf, ^uint64(0)) // the section's length is not known
	x.option(optionApplication, application)
	x.u32(optionEnd)
	if err := x.end(); err != nil {
		return nil, err
	}
	x.begin(blockInterface)
	x.u16(linkRaw)
	x.u16(0)
	x.u32(uint32(i.SnapLen))
	x.option(optionName, i.Name)
	x.option(optionDescription, i.Description)
	if i.Filter != "" {
		x.option(optionFilter, "\x00"+i.Filter) // 0: it is text
	}
	x.option(optionResolution, string([]byte{nanosecond}))
	x.u32(optionEnd)
	return x, x.end()
}

// Packet writes an enhanced packet block.
func (x *Writer) Packet(p Packet) error {
	x.begin(blockPacket)
	x.u32(0) // the interface
	x.time(p.Time)
	x.u32(uint32(len(p.Data)))
	x.u32(uint32(p.Length))
	x.buf = append(x.buf, p.Data...)
	x.pad()
	if p.Direction != Unknown {
		x.u16(optionFlags)
		x.u16(4)
		x.u32(uint32(p.Direction))
	}
	for _, c := range p.Comments {
		x.option(optionComment, c)
	}
	x.u32(optionEnd)
	return x.end()
}

// Statistics writes an interface statistics block.
func (x *Writer) Statistics(at time.Time, s Statistics) error {
	x.begin(blockStatistics)
	x.u32(0) // the interface
	x.time(at)
	for _, o := range []struct {
		code  uint16
		value uint64
	}{{optionReceived, s.Received}, {optionDropped, s.Missed}} {
		x.u16(o.code)
		x.u16(8)
		x.buf = binary.LittleEndian.AppendUint64(x.buf, o.value)
	}
	x.u32(optionEnd)
	return x.end()
}

func (x *Writer) u16(v uint16) { x.buf = binary.LittleEndian.AppendUint16(x.buf, v) }
func (x *Writer) u32(v uint32) { x.buf = binary.LittleEndian.AppendUint32(x.buf, v) }

func (x *Writer) time(t time.Time) {
	v := uint64(t.UnixNano())
	x.u32(uint32(v >> 32))
	x.u32(uint32(v))
}

func (x *Writer) pad() {
	for len(x.buf)%4 != 0 {
		x.buf = append(x.buf, 0)
	}
}

// option appends an option, unless it is empty.
func (x *Writer) option(code uint16, value string) {
	if value == "" {
		return
	}
	value = value[:min(len(value), 65535)]
	x.u16(code)
	x.u16(uint16(len(value)))
	x.buf = append(x.buf, value...)
	x.pad()
}

func (x *Writer) begin(kind uint32) {
	x.buf = x.buf[:0]
	x.u32(kind)
	x.u32(0) // its length, which end knows
}

func (x *Writer) end() error {
	n := uint32(len(x.buf) + 4)
	x.u32(n)
	binary.LittleEndian.PutUint32(x.buf[4:], n)
	if _, err := x.w.Write(x.buf); err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	return nil
}

// Block is a block as it was read.
type Block struct {
	// Raw is the whole block. borrowed: it is valid until the next call of Next.
	Raw []byte
	// Packet, Interface and Statistics are not nil for a block that is one.
	Packet     *Packet
	Interface  *Interface
	Statistics *Statistics
}

// Reader reads what a Writer wrote. It is for one goroutine.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

var errFormat = errors.New("it is not a capture in the format pcapng, or it is damaged")

// Next returns the next block. The error is io.EOF at the end of a whole block, io.ErrUnexpectedEOF within one.
func (r *Reader) Next() (Block, error) {
	r.buf = slices.Grow(r.buf[:0], 8)[:8]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return Block{}, err
	}
	kind, n := binary.LittleEndian.Uint32(r.buf), binary.LittleEndian.Uint32(r.buf[4:])
	if n < 12 || n > maxBlock || n%4 != 0 {
		return Block{}, fmt.Errorf("read capture: a block of %d bytes: %w", n, errFormat)
	}
	r.buf = slices.Grow(r.buf, int(n)-8)[:n]
	if _, err := io.ReadFull(r.r, r.buf[8:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Block{}, err
	}
	body := fields(r.buf[8 : n-4])
	b := Block{Raw: r.buf}
	switch kind {
	case blockSection:
		if body.u32() != byteOrder {
			return Block{}, fmt.Errorf("read capture: of another byte order: %w", errFormat)
		}
	case blockInterface:
		body.take(4)
		b.Interface = &Interface{SnapLen: int(body.u32())}
		body.options(func(code uint16, v []byte) {
			switch code {
			case optionName:
				b.Interface.Name = string(v)
			case optionDescription:
				b.Interface.Description = string(v)
			case optionFilter:
				b.Interface.Filter = string(v[min(1, len(v)):])
			}
		})
	case blockPacket:
		body.take(4)
		p := &Packet{Time: body.time()}
		kept := int(body.u32())
		p.Length = int(body.u32())
		if kept > len(body) {
			return Block{}, fmt.Errorf("read capture: a packet longer than its block: %w", errFormat)
		}
		p.Data = body.take((kept + 3) &^ 3)[:kept]
		body.options(func(code uint16, v []byte) {
			switch {
			case code == optionFlags && len(v) == 4:
				p.Direction = Direction(v[0] & 3)
			case code == optionComment:
				p.Comments = append(p.Comments, string(v))
			}
		})
		b.Packet = p
	case blockStatistics:
		body.take(12)
		b.Statistics = &Statistics{}
		body.options(func(code uint16, v []byte) {
			switch {
			case len(v) != 8:
			case code == optionReceived:
				b.Statistics.Received = binary.LittleEndian.Uint64(v)
			case code == optionDropped:
				b.Statistics.Missed = binary.LittleEndian.Uint64(v)
			}
		})
	}
	return b, nil
}

// fields are bytes that are read from the front. What is missing reads as 0.
type fields []byte

func (f *fields) take(n int) []byte {
	if n > len(*f) {
		*f = append(slices.Clone(*f), make([]byte, n-len(*f))...)
	}
	b := (*f)[:n]
	*f = (*f)[n:]
	return b
}

func (f *fields) u32() uint32 { return binary.LittleEndian.Uint32(f.take(4)) }

func (f *fields) time() time.Time {
	high := uint64(f.u32())
	return time.Unix(0, int64(high<<32|uint64(f.u32())))
}

func (f *fields) options(each func(code uint16, value []byte)) {
	for len(*f) >= 4 {
		code, n := binary.LittleEndian.Uint16(*f), int(binary.LittleEndian.Uint16((*f)[2:]))
		f.take(4)
		if code == optionEnd || n > len(*f) {
			return
		}
		each(code, f.take(min((n+3)&^3, len(*f)))[:n])
	}
}
