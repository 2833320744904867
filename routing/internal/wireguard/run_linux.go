package wireguard

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// What one call may send in one piece: UDP_MAX_SEGMENTS of linux/udp.h before Linux 6.9, and what fits in a datagram of IPv4.
const (
	maxSegments = 64
	maxRun      = 65535 - 20 - 8
)

// run has the memory for one batch to be sent.
type run struct {
	ms    []ipv4.Message
	parts [][][]byte // of each message: what is sent in one piece, without being copied together
	oob   [][]byte   // of each message
	used  int        // messages that clear has to let go of
}

func newRun() *run {
	r := &run{ms: make([]ipv4.Message, conn.IdealBatchSize), parts: make([][][]byte, conn.IdealBatchSize), oob: make([][]byte, conn.IdealBatchSize)}
	for i := range r.oob {
		r.oob[i] = segmentControl()
	}
	return r
}

// segmentControl is room for the control message that says how large the segments are.
func segmentControl() []byte {
	b := make([]byte, unix.CmsgSpace(2))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
	if unix.SizeofCmsghdr == 12 { // 32 bits
		binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(2)))
	}
	binary.NativeEndian.PutUint32(b[unix.SizeofCmsghdr-8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(b[unix.SizeofCmsghdr-4:], unix.UDP_SEGMENT)
	return b
}

// gather makes messages of bufs, in their order: datagrams of one length, and a shorter one after them, are one message.
func (r *run) gather(bufs [][]byte, e *endpoint) []ipv4.Message {
	n, size, total := 0, 0, 0
	ended := true // the message cannot be added to
	for _, b := range bufs {
		if m := n - 1; !ended && len(b) <= size && total+len(b) <= maxRun && len(r.parts[m]) < maxSegments {
			r.parts[m] = append(r.parts[m], b)
			total += len(b)
			ended = len(b) < size
			continue
		}
		r.parts[n] = append(r.parts[n][:0], b)
		size, total, ended = len(b), len(b), len(b) == 0
		n++
	}
	for i := range n {
		r.ms[i] = ipv4.Message{Buffers: r.parts[i], Addr: &e.udp}
		if len(r.parts[i]) > 1 {
			binary.NativeEndian.PutUint16(r.oob[i][unix.SizeofCmsghdr:], uint16(len(r.parts[i][0])))
			r.ms[i].OOB = r.oob[i]
		}
	}
	r.used = n
	return r.ms[:n]
}

// single makes a message of each.
func (r *run) single(bufs [][]byte, e *endpoint) []ipv4.Message {
	for i, b := range bufs {
		r.parts[i] = append(r.parts[i][:0], b)
		r.ms[i] = ipv4.Message{Buffers: r.parts[i], Addr: &e.udp}
	}
	r.used = len(bufs)
	return r.ms[:len(bufs)]
}

// clear lets go of the caller's memory. A batch is often one datagram, and room is there for many.
func (r *run) clear() {
	clear(r.ms[:r.used])
	for i := range r.used {
		clear(r.parts[i])
		r.parts[i] = r.parts[i][:0]
	}
	r.used = 0
}

// received is how many messages are taken in one call, and received bytes each has room for: what UDP_GRO joins is at most a datagram.
const (
	received     = 16
	receivedSize = 1 << 16
)

// incoming has what the last call brought and nobody has fetched yet. It belongs to one goroutine.
type incoming struct {
	ms   []ipv4.Message
	next int // the message that is being fetched
	end  int // how many there are
	at   int // how much of it has been fetched, in bytes
	// from is where the last message came from: one peer's come side by side, and need one endpoint.
	from *endpoint
}

func newIncoming() *incoming {
	in := &incoming{ms: make([]ipv4.Message, received)}
	for i := range in.ms {
		in.ms[i].Buffers, in.ms[i].OOB = [][]byte{make([]byte, receivedSize)}, make([]byte, unix.CmsgSpace(4))
	}
	return in
}

// receive is the socket's conn.ReceiveFunc.
func (s *socket) receive(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	in := s.in
	for in.next == in.end {
		n, err := s.batch.ReadBatch(in.ms, 0)
		if err != nil {
			return 0, err
		}
		in.next, in.end, in.at = 0, n, 0
	}
	return in.fetch(bufs, sizes, eps), nil
}

// fetch copies as many datagrams as there is room for.
func (in *incoming) fetch(bufs [][]byte, sizes []int, eps []conn.Endpoint) (n int) {
	for ; in.next < in.end && n < len(bufs); in.next, in.at = in.next+1, 0 {
		m := &in.ms[in.next]
		from := in.endpoint(m)
		whole := m.Buffers[0][:m.N]
		size := joinedSize(m.OOB[:m.NN])
		if size <= 0 || size > len(whole) {
			size = len(whole)
		}
		for ; in.at < len(whole) && n < len(bufs); n++ {
			part := whole[in.at:min(in.at+size, len(whole))]
			sizes[n], eps[n] = copy(bufs[n], part), from
			in.at += len(part)
		}
		if in.at < len(whole) { // the rest is for the next call
			return n
		}
	}
	return n
}

// endpoint is where a message came from.
func (in *incoming) endpoint(m *ipv4.Message) *endpoint {
	a := addrPortOf(m)
	if in.from == nil || in.from.AddrPort != a {
		in.from = newEndpoint(a)
	}
	return in.from
}

func addrPortOf(m *ipv4.Message) netip.AddrPort {
	a, ok := m.Addr.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// joinedSize is how large the datagrams are that UDP_GRO joined; 0 if it joined none.
func joinedSize(control []byte) int {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(data)))
		}
		control = rest
	}
	return 0
}
