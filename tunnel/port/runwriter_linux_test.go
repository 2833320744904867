package port

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// fakeWire is a socket's wire that notes what the kernel is given to send, and checks that it could send it.
type fakeWire struct {
	sockets
	tb    testing.TB
	w     *runWriter
	sends []fakeSend
	calls []int // how many sends each system call took
	// refuse, if not nil, says what becomes of a send of n datagrams.
	refuse func(n int, data []byte) unix.Errno
	// takes says that superpackets may leave whole.
	takes bool
}

// fakeSend is one send.
type fakeSend struct {
	to        netip.AddrPort
	ecn       encap.ECN
	datagrams [][]byte
	whole     *Packet // a superpacket, as it was
	errno     unix.Errno
}

// newFakeWire is a run writer that sends segs datagrams at once into a fake wire.
func newFakeWire(tb testing.TB, segs int) *fakeWire {
	f := &fakeWire{tb: tb, sockets: sockets{group: []*UDPSocket{{fd: -1}}}}
	f.w = newRunWriter(f, UDPOptions{}, "fake", true)
	f.w.sendmmsg = f.sendmmsg
	f.w.maxSegs = segs
	// as on path raw; this wire takes none whole unless it is told to
	f.w.outlet.Store(&OutletChoice{Outlet: OutletWhole})
	return f
}

// pieces is what iovecs point to.
func pieces(v []unix.Iovec) []byte {
	var b []byte
	for _, p := range v {
		b = append(b, unsafe.Slice(p.Base, p.Len)...)
	}
	return b
}

func (f *fakeWire) address(r *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int) {
	b := pieces(v[1:])
	switch {
	case len(v) > 1024:
		f.tb.Fatalf("%d iovecs", len(v))
	case n == 1 && len(b) != size, n > 1 && (len(b) <= (n-1)*size || len(b) > n*size):
		f.tb.Fatalf("%d datagrams of %d bytes are not %d bytes", n, size, len(b))
	case n < 1 || n > f.w.maxSegs || n > 1 && len(b) > maxDatagram:
		f.tb.Fatalf("%d datagrams, %d bytes in one send", n, len(b))
	}
	f.sockets.address(r, m, h, v, n, size)
	v[0] = iovec([]byte("a header of the wire's own"))
}

// sendmmsg is sendmmsg(2): it ends at a send that is refused, and says why if that is the first.
func (f *fakeWire) sendmmsg(_ int, ms []messageHeader) (int, unix.Errno) {
	for k := range ms {
		s := decode(&ms[k])
		if f.refuse != nil {
			s.errno = f.refuse(len(s.datagrams), bytes.Join(s.datagrams, nil))
		}
		if s.errno == 0 {
			f.sends = append(f.sends, s)
			continue
		}
		if f.calls = append(f.calls, k); k > 0 {
			return k, 0
		}
		// what may be another's error is met twice
		if n := len(f.sends); n == 0 || !reflect.DeepEqual(s, f.sends[n-1]) {
			f.sends = append(f.sends, s)
		}
		return 0, s.errno
	}
	f.calls = append(f.calls, len(ms))
	return len(ms), 0
}

// decode reads what the kernel would.
func decode(h *messageHeader) fakeSend {
	s := fakeSend{to: (*socketName)(unsafe.Pointer(h.Name)).addr()}
	b := pieces(unsafe.Slice(h.Iov, h.Iovlen))
	size := len(b)
	for rest := unsafe.Slice(h.Control, h.Controllen); ; {
		var m controlMessage
		var ok bool
		if m, rest, ok = nextControl(rest); !ok {
			break
		}
		if m.level == unix.SOL_UDP {
			size = int(binary.NativeEndian.Uint16(m.data))
		} else {
			s.ecn = encap.ECN(m.data[0])
		}
	}
	for d := range slices.Chunk(b, size) {
		s.datagrams = append(s.datagrams, d)
	}
	return s
}

func (f *fakeWire) whole(w *runWriter, r *Ring, p *Packet) bool {
	if f.takes {
		w.flush(r)
		w.drain(r)
		q := *p
		q.buf = bytes.Clone(p.buf)
		f.sends = append(f.sends, fakeSend{to: p.Outer, ecn: p.OuterECN, whole: &q})
	}
	return f.takes
}

// sent is what was sent, in words: sends are separated by " / ", their datagrams by " ", the
// packets in those by "+"; "~" comes before padding, "!" before what was refused.
func (f *fakeWire) sent() string {
	var sends []string
	for _, s := range f.sends {
		var words []string
		if s.whole != nil {
			words = append(words, fmt.Sprintf("whole %d", len(s.whole.Bytes())))
		}
		for _, d := range s.datagrams {
			words = append(words, datagramWords(d))
		}
		word := strings.Join(words, " ")
		if s.errno != 0 {
			word = "!" + word
		}
		sends = append(sends, word)
	}
	return strings.Join(sends, " / ")
}

func datagramWords(d []byte) string {
	var l []string
	for b := d; len(b) > 0; {
		in, err := encap.ParseInner(b)
		if err != nil {
			return fmt.Sprintf("?%d", len(d))
		}
		l = append(l, fmt.Sprint(in.TotalLen))
		rest, err := encap.NextPacked(b, in.TotalLen)
		if pad := len(b) - in.TotalLen; len(rest) == 0 && pad > 0 {
			return fmt.Sprintf("%s~%d", strings.Join(l, "+"), pad)
		}
		if err != nil {
			return fmt.Sprintf("?%d", len(d))
		}
		b = rest
	}
	return strings.Join(l, "+")
}

// outgoing is a packet to be sent.
type outgoing struct {
	size int // of the packet, in bytes
	ecn  encap.ECN
	to   byte // the peer: 192.0.2.to
	recv Recv
	mss  int // of a superpacket
	six  bool
}

// packets makes what the egress side would hand to the port.
func packets(l []outgoing, limit int) []*Packet {
	var ps []*Packet
	for i, o := range l {
		b := ipv4Packet("10.1.1.5", "10.1.2.7", max(o.size, 28))
		b[4], b[5] = byte(i>>8), byte(i)
		switch {
		case o.mss > 0:
			b = tcp4(o.size - 40)
		case o.six:
			b = make([]byte, o.size)
			b[0], b[6], b[7] = 0x60, 59, 64 // no next header
			b[4], b[5] = byte((o.size-40)>>8), byte(o.size-40)
			b[8], b[24] = 0xfd, 0xfd
		}
		p := &Packet{state: state{buf: make([]byte, Headroom+MaxPacket)}}
		p.Reset()
		p.end += copy(p.Space(), b)
		p.Outer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, max(o.to, 2)}), 8285)
		p.OuterECN, p.Recv, p.Limit, p.Size = o.ecn, o.recv, limit, len(b)
		if o.mss > 0 {
			p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = o.mss, true, 20, encap.ChecksumOffsetTCP
			p.Segments = (o.size - 40 + o.mss - 1) / o.mss
		}
		ps = append(ps, p)
	}
	return ps
}

// of makes plain packets of these sizes for a receiver that takes recv.
func of(recv Recv, sizes ...int) (l []outgoing) {
	for _, n := range sizes {
		l = append(l, outgoing{size: n, recv: recv})
	}
	return l
}

// TestRunForms is which packets leave together, and how.
func TestRunForms(t *testing.T) {
	const pack = RecvPack
	super := func(recv Recv, size int) outgoing { return outgoing{size: size, recv: recv, mss: 1000} }
	small := outgoing{size: 64, recv: Supported}
	for _, tt := range []struct {
		name  string
		send  []outgoing
		limit int // 0: 1472
		set   func(*fakeWire)
		want  string
	}{
		{name: "small packets share a datagram", send: of(pack, 64, 64, 64), want: "64+64+64"},
		{name: "and do not at a peer that has not said so", send: of(0, 64, 64, 64), want: "64 64 64"},
		{name: "nor at one that says other things", send: of(RecvGSO|RecvPCsum, 64, 64), want: "64 64"},
		{name: "nor when it is switched off", send: of(pack, 64, 64, 64), want: "64 64 64",
			set: func(f *fakeWire) { f.w.pack.set(OffloadPack, OffloadSet(0).With(OffloadPack), true) }},
		{name: "they do without GSO", send: of(pack, 64, 64, 1400, 1400, 64), want: "64+64 / 1400 / 1400+64",
			set: func(f *fakeWire) { f.w.gso.set(OffloadGSO, 0, false) }},
		{name: "without both each is alone", send: of(0, 64, 64), want: "64 / 64",
			set: func(f *fakeWire) { f.w.gso.set(OffloadGSO, 0, false) }},
		{name: "large ones of one size are a plain run", send: of(pack, 1400, 1400, 1400), want: "1400 1400 1400"},
		{name: "a second one turns a plain run into a packed one", send: of(pack, 1400, 64, 1400),
			want: "1400+64~8 1400"},
		{name: "which a third does not", send: of(pack, 1400, 1400, 64, 64), want: "1400 1400 64 / 64"},
		{name: "mixed", send: of(pack, 64, 594, 1400, 64, 594, 1400), want: "64+594 / 1400+64~8 594 / 1400"},
		{name: "a quarter is padded", send: of(pack, 1104, 594), want: "1104~368 594"},
		{name: "and no more", send: of(pack, 1103, 594), want: "1103 / 594"},
		{name: "those of one size that would leave more are a plain run", send: of(pack, 511, 511, 511, 511),
			want: "511 511 511 511"},
		{name: "until something else comes", send: of(pack, 511, 64, 511, 64), want: "511+64+511+64"},
		{name: "full ones need no padding", send: of(pack, 92, 92, 92, 92, 92, 92, 92, 92, 92, 92, 92, 92, 92, 92,
			92, 92, 92), want: strings.Repeat("92+", 15) + "92 92"},
		{name: "the limit is the peer's", send: of(pack, 64, 64, 64), limit: 130, want: "64+64~2 64"},
		{name: "a packet above it is alone", send: []outgoing{{size: 64, recv: pack},
			{size: 1280, recv: pack, six: true}, {size: 64, recv: pack}, {size: 64, recv: pack}},
			limit: 548, want: "64 / 1280 64 / 64"},
		{name: "and if it is first", send: []outgoing{{size: 1280, recv: pack, six: true}, {size: 64, recv: pack},
			{size: 64, recv: pack}},
			limit: 548, want: "1280 64 / 64"},
		{name: "both families in one", send: []outgoing{{size: 64, recv: pack}, {size: 100, recv: pack, six: true}},
			want: "64+100"},
		{name: "descending without packing", send: of(0, 1400, 594, 64), want: "1400 594 / 64"},
		{name: "ascending without packing", send: of(0, 64, 594, 1400), want: "64 / 594 / 1400"},
		{name: "a superpacket ends the datagram", send: []outgoing{small, super(RecvPack, 3040), small},
			want: "64 / 1040 1040 1040 64"},
		{name: "a short last segment ends the run", send: []outgoing{super(0, 2540), super(0, 2540)},
			want: "1040 1040 540 / 1040 1040 540"},
		{name: "a whole one goes between", send: []outgoing{small, super(Supported, 3040), small},
			want: "64 / whole 3040 / 64",
			set:  func(f *fakeWire) { f.takes = true }},
		{name: "not to a peer that cannot take it", send: []outgoing{super(RecvPCsum|RecvPack, 2040)},
			want: "1040 1040",
			set:  func(f *fakeWire) { f.takes = true }},
		{name: "nor if the wire has no way", send: []outgoing{small, super(Supported, 2040), small},
			want: "64 / 1040 1040 64"},
		{name: "a congestion mark ends a run", send: []outgoing{{size: 64, recv: pack, ecn: 2},
			{size: 64, recv: pack, ecn: 3}, {size: 64, recv: pack, ecn: 2}, {size: 64, recv: pack, ecn: 2}},
			want: "64 / 64 / 64+64"},
		{name: "two peers", send: []outgoing{{size: 64, recv: pack}, {size: 64, to: 3}, {size: 64, recv: pack},
			{size: 64, to: 3}}, want: "64+64 / 64 64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeWire(t, 64)
			if tt.set != nil {
				tt.set(f)
			}
			limit := tt.limit
			if limit == 0 {
				limit = 1472
			}
			ps := packets(tt.send, limit)
			f.w.writeRuns(NewRing(), ps)
			if got := f.sent(); got != tt.want {
				t.Errorf("sent %s\nwant %s", got, tt.want)
			}
			for i, p := range ps {
				if p.Verdict != Delivered {
					t.Errorf("packet %d has verdict %d", i, p.Verdict)
				}
			}
		})
	}
}

// TestRunLimits fills runs to what one send may have: the fake wire fails if there is more.
func TestRunLimits(t *testing.T) {
	for _, segs := range []int{1, 64, 128} {
		for _, size := range []int{28, 64, 511, 600, 1103, 1104, 1400, 1472} {
			for _, recv := range []Recv{0, RecvPack, Supported} {
				f := newFakeWire(t, segs)
				const n = BatchSize + MaxRun // all that a ring holds
				ps := packets(of(recv, slices.Repeat([]int{size}, n)...), 1472)
				f.w.writeRuns(NewRing(), ps)
				got, fewest := 0, 1<<20
				for i, s := range f.sends {
					for _, d := range s.datagrams {
						got += strings.Count(datagramWords(d), "+") + 1
					}
					if i < len(f.sends)-1 {
						fewest = min(fewest, len(s.datagrams))
					}
				}
				if got != n {
					t.Fatalf("segs=%d size=%d recv=%v: %d packets left, of %d", segs, size, recv.Names(), got, n)
				}
				if full := min(segs, maxDatagram/1472); len(f.sends) > 1 && fewest < full {
					t.Errorf("segs=%d size=%d recv=%v: a send of %d datagrams that is not the last, want %d", segs, size,
						recv.Names(), fewest, full)
				}
			}
		}
	}
	// The largest packets that there are, and the most segments.
	f := newFakeWire(t, 128)
	f.w.writeRuns(NewRing(), packets(of(RecvPack, 65000, 64, 65507, 64, 65507, 65507), maxDatagram))
	if got, want := f.sent(), "65000+64 / 65507 / 64 / 65507 / 65507"; got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	f = newFakeWire(t, 128)
	f.w.writeRuns(NewRing(), packets([]outgoing{{size: 40 + 300, mss: 1}, {size: 40 + MaxSegments, mss: 1}},
		1472))
	n := 0
	for _, s := range f.sends {
		n += len(s.datagrams)
	}
	if n != 300+MaxSegments {
		t.Errorf("%d segments left, want %d", n, 300+MaxSegments)
	}
}

// TestRunTooLarge has what no send can take meet the kernel alone, and cost only itself.
func TestRunTooLarge(t *testing.T) {
	f := newFakeWire(t, 64)
	f.refuse = func(_ int, b []byte) unix.Errno {
		if len(b) > maxDatagram {
			return unix.EMSGSIZE
		}
		return 0
	}
	ps := packets(of(Supported, 64, 65508, 64), 65508)
	f.w.writeRuns(NewRing(), ps)
	for i, want := range []Verdict{Delivered, verdictDrop + Verdict(DropTooBig), Delivered} {
		if ps[i].Verdict != want {
			t.Errorf("packet %d has verdict %d, want %d; sent %s", i, ps[i].Verdict, want, f.sent())
		}
	}
}
