package port

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// loop is a run writer, with a fake wire to several peers.
type loop struct {
	tb   testing.TB
	ring *Ring
	wire *fakeWire
	got  [][]byte // what the peers make of what crossed the wire
	tag  uint32   // of the last packet
}

// loopPeer is what a peer takes: the forms of datagram, and how much in one.
type loopPeer struct {
	name  string
	addr  netip.Addr
	weft  bool
	recv  Recv
	limit int
}

// loopPeers are those of 10.1.2.0/24, 10.1.3.0/24 and so on.
func loopPeers() []loopPeer {
	return []loopPeer{
		{"everything", addr("192.0.2.2"), true, Supported, 1472},
		{"packed", addr("192.0.2.3"), true, RecvPack, 1472},
		{"flannel", addr("192.0.2.4"), false, 0, 1472},
		{"small", addr("192.0.2.5"), true, Supported, 1300},
		{"far", addr("2001:db8::6"), true, Supported, 1452},
	}
}

func newLoop(tb testing.TB, segs int) *loop {
	tb.Helper()
	l := &loop{tb: tb, ring: NewRing(), wire: newFakeWire(tb, segs)}
	l.wire.w.pcsum.set(OffloadPCsum, 0, true)
	return l
}

// build writes a packet of the kind that the three bytes say into p, as a TUN would hand it over.
func (l *loop) build(p *Packet, peer, kind, size byte) (n int) {
	l.tag++
	six, tcp, super, partial := kind&1 != 0, kind&2 != 0, kind&12 == 0, kind&4 == 0
	b := p.Space()
	l4, proto, head := encap.IPv4Len, byte(encap.ProtoUDP), encap.UDPLen
	if six {
		l4 = encap.IPv6Len
	}
	if tcp {
		proto, head = encap.ProtoTCP, 20
	}
	payload := 4 + int(size)*4 // at most 1024, with headers below every limit
	mss := 0
	if super {
		mss, payload = 100+int(size)*4, (1+int(size)%9)*(100+int(size)*4)-int(kind>>6)
	}
	n = l4 + head + payload
	clear(b[:n])
	src, dst := addr("10.1.1.5"), netip.AddrFrom4([4]byte{10, 1, 2 + peer%5, 7})
	ecn := kind >> 4 & 3
	if six {
		src = addr("fd00:1:1::5")
		dst = netip.MustParseAddr(fmt.Sprintf("fd00:1:%d::7", 2+peer%5))
		b[0], b[1], b[6], b[7] = 0x60, ecn<<4, proto, 64
		binary.BigEndian.PutUint16(b[4:], uint16(head+payload))
		copy(b[8:], src.AsSlice())
		copy(b[24:], dst.AsSlice())
	} else {
		b[0], b[1], b[6], b[8], b[9] = 0x45, ecn, 0x40, 64, proto
		binary.BigEndian.PutUint16(b[2:], uint16(n))
		copy(b[12:], src.AsSlice())
		copy(b[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	}
	field := encap.ChecksumOffsetUDP
	binary.BigEndian.PutUint32(b[l4:], 1000<<16|2000)
	if tcp {
		field = encap.ChecksumOffsetTCP
		b[l4+12], b[l4+13] = 5<<4, 0x18
		binary.BigEndian.PutUint32(b[l4+4:], l.tag)
	} else {
		binary.BigEndian.PutUint16(b[l4+4:], uint16(head+payload))
	}
	for i := l4 + head; i < n; i++ {
		b[i] = byte(i)
	}
	binary.BigEndian.PutUint32(b[l4+head:], l.tag)
	binary.BigEndian.PutUint16(b[l4+field:], encap.Fold(encap.PseudoHeaderSum(src, dst, proto, head+payload)))
	if p.Partial, p.CsumStart, p.CsumOffset = true, l4, field; !partial && !super {
		p.complete0(n)
	}
	p.SegSize = mss
	return n
}

// complete0 is complete for a packet of n bytes that is not committed yet.
func (p *Packet) complete0(n int) {
	encap.FinishChecksum(p.Space()[:n], p.CsumStart, p.CsumOffset)
	p.Partial = false
}

// wholePackets is what p is or stands for, with complete checksums.
func wholePackets(tb testing.TB, p *Packet) (l [][]byte) {
	tb.Helper()
	b := bytes.Clone(p.Bytes())
	if p.SegSize == 0 {
		if p.Partial {
			encap.FinishChecksum(b, p.CsumStart, p.CsumOffset)
		}
		return [][]byte{b}
	}
	in, err := encap.ParseInner(b)
	if err != nil {
		tb.Fatal(err)
	}
	super, err := encap.ParseSuper(b, in, p.SegSize)
	if err != nil {
		tb.Fatal(err)
	}
	for k := range super.Segments {
		from, to := super.Payload(k)
		l = append(l, append(super.AppendHeader(nil, b, k, false), b[from:to]...))
	}
	return l
}

// expected is a packet that was sent to a peer, as what should arrive.
type expected struct {
	packets   [][]byte
	delivered bool
}

// at is the number of the peer that has the destination of b.
func at(b []byte) int {
	if b[0]>>4 == 6 {
		return int(b[29]) - 2
	}
	return int(b[18]) - 2
}

// Batch sends one batch and has the peers take apart what crossed the wire.
func (l *loop) batch(program []byte) {
	l.tb.Helper()
	l.ring.Reset(0)
	for ; len(program) >= 3; program = program[3:] {
		p := l.ring.Slot()
		if p == nil {
			break
		}
		l.ring.Commit(l.build(p, program[0], program[1], program[2]))
	}
	peers := loopPeers()
	want := make([][]expected, len(peers))
	var out []*Packet
	for i := range l.ring.Batch() {
		p := &l.ring.slots[i]
		n := at(p.Bytes())
		want[n] = append(want[n], expected{packets: wholePackets(l.tb, p)})
		if l.decide(p, peers[n]) {
			out = append(out, p)
		}
	}
	l.wire.sends, l.got = l.wire.sends[:0], nil
	l.wire.w.gso.set(OffloadGSO, 0, true)
	l.wire.w.writeRuns(l.ring, out)

	seen := make([]int, len(want))
	for i := range l.ring.Batch() {
		p := &l.ring.slots[i]
		n := at(p.Bytes())
		want[n][seen[n]].delivered = p.Verdict == Delivered
		seen[n]++
	}
	for _, s := range l.wire.sends {
		if s.errno == 0 {
			l.receive(s)
		}
	}
	l.compare(want)
}

// decide describes p as the engine does for the peer. It is false if the peer cannot have it.
func (l *loop) decide(p *Packet, peer loopPeer) bool {
	in, err := p.Parse()
	if err != nil {
		l.tb.Fatal(err)
	}
	if p.SegSize > 0 {
		super, _, ok := p.ParseSuper()
		if !ok {
			l.tb.Fatalf("%+v", p)
		}
		p.Segments = super.Segments
	}
	p.Recv, p.Limit = peer.recv, peer.limit
	p.Outer = netip.AddrPortFrom(peer.addr, 8285)
	if peer.weft {
		p.OuterECN = in.ECN()
	}
	if p.Partial && p.SegSize == 0 && !l.wire.w.LeavesPartial(p.Recv) {
		p.Complete()
	}
	return peer.weft || in.Version == 4
}

// receive is what a peer makes of a send, and looks whether it is one that the peer can take.
func (l *loop) receive(s fakeSend) {
	l.tb.Helper()
	if s.whole != nil {
		l.got = append(l.got, wholePackets(l.tb, s.whole)...)
		return
	}
	var peer loopPeer
	for _, p := range loopPeers() {
		if p.addr == s.to.Addr() {
			peer = p
		}
	}
	for _, d := range s.datagrams {
		if len(d) > peer.limit {
			l.tb.Fatalf("%s gets a datagram of %d bytes", peer.name, len(d))
		}
		for rest := d; len(rest) > 0; {
			in, err := encap.ParseInner(rest)
			if err != nil {
				l.tb.Fatalf("%s gets %x: %v", peer.name, rest, err)
			}
			if !peer.weft && (s.ecn != encap.NotECT || in.Version == 6) {
				l.tb.Fatalf("%s gets IPv%d with outer ECN %d", peer.name, in.Version, s.ecn)
			}
			b := bytes.Clone(rest[:in.TotalLen])
			if start, offset, partial := encap.PartialChecksum(b, in); partial && peer.recv&RecvPCsum != 0 {
				encap.FinishChecksum(b, start, offset)
			}
			if !encap.ChecksumOK(b, in) {
				l.tb.Fatalf("%s gets a wrong checksum", peer.name)
			}
			l.got = append(l.got, b)
			more, _ := encap.NextPacked(rest, in.TotalLen)
			if len(more) > 0 && peer.recv&RecvPack == 0 {
				l.tb.Fatalf("%s gets a datagram of several packets: %s", peer.name, datagramWords(d))
			}
			rest = more
		}
	}
}

// compare sees that each peer got what was delivered, in order. What was refused is missing,
// but for parts of superpackets.
func (l *loop) compare(want [][]expected) {
	l.tb.Helper()
	got := make([][][]byte, len(want))
	for _, b := range l.got {
		got[at(b)] = append(got[at(b)], b)
	}
	for k := range want {
		rest := got[k]
		for i, e := range want[k] {
			for j, b := range e.packets {
				if len(rest) > 0 && bytes.Equal(rest[0], b) {
					if rest = rest[1:]; e.delivered || len(e.packets) > 1 {
						continue
					}
					l.tb.Fatalf("peer %d: packet %d was refused, and has arrived", k, i)
				}
				if e.delivered {
					l.tb.Fatalf("peer %d: piece %d of packet %d is not the next that arrived", k, j, i)
				}
			}
		}
		if len(rest) > 0 {
			l.tb.Fatalf("peer %d: %d packets too many", k, len(rest))
		}
	}
}

// runProgram lets a few bytes choose the set-up, and the others the packets.
func runProgram(tb testing.TB, program []byte) {
	if len(program) < 4 {
		return
	}
	mode, fault := program[0], program[1]
	l := newLoop(tb, []int{1, 64, 128}[mode%3])
	l.wire.takes = mode&8 != 0
	if mode&16 != 0 {
		l.wire.w.pack.set(OffloadPack, OffloadSet(0).With(OffloadPack), true)
	}
	calls := 0
	if mode&32 != 0 {
		l.wire.refuse = func(n int, _ []byte) unix.Errno {
			calls++
			if (calls*int(fault|1))%7 != 0 {
				return 0
			}
			return []unix.Errno{unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.ENOBUFS, unix.EPERM}[(calls+n)%5]
		}
	}
	for rest := program[2:]; len(rest) >= 3; {
		n := min(len(rest), 3*MaxReads)
		l.batch(rest[:n])
		rest = rest[n:]
	}
}

// TestRunsArriveWhole sends random packets to peers of every kind: what was delivered has arrived, in order
// for each peer, and nothing else.
func TestRunsArriveWhole(t *testing.T) {
	const seed = 20
	r := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		program := make([]byte, 2+3*(1+r.IntN(150)))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		if r.IntN(3) == 0 { // one peer, small packets
			for i := 2; i+2 < len(program); i += 3 {
				program[i], program[i+1], program[i+2] = 0, program[i+1]|8, program[i+2]&31
			}
		}
		runProgram(t, program)
	}
}

func FuzzRuns(f *testing.F) {
	f.Add([]byte{1, 0, 0, 8, 5, 0, 8, 9, 0, 0, 200, 0, 8, 3})
	f.Add([]byte{33 + 4, 3, 0, 8, 255, 0, 12, 255, 1, 3, 255, 3, 9, 0})
	f.Fuzz(func(t *testing.T, program []byte) { runProgram(t, program[:min(len(program), 2000)]) })
}
