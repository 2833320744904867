package tunnel

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

// capture is an inner port that keeps what a program would get, packet by packet.
type capture struct {
	Port
	tb  testing.TB
	got [][]byte
}

func (c *capture) WriteBatch(_ *Ring, ps []*Packet) {
	for _, p := range ps {
		c.got = append(c.got, wholePackets(c.tb, p)...)
		p.Delivered()
	}
}

// wholePackets is what p is or stands for, with complete checksums.
func wholePackets(tb testing.TB, p *Packet) (l [][]byte) {
	tb.Helper()
	b := bytes.Clone(p.Bytes())
	if p.segSize == 0 {
		if p.partial {
			encap.FinishChecksum(b, p.csumStart, p.csumOffset)
		}
		return [][]byte{b}
	}
	in, err := encap.ParseInner(b)
	if err != nil {
		tb.Fatal(err)
	}
	super, err := encap.ParseSuper(b, in, p.segSize)
	if err != nil {
		tb.Fatal(err)
	}
	for k := range super.Segments {
		from, to := super.Payload(k)
		l = append(l, append(super.AppendHeader(nil, b, k, false), b[from:to]...))
	}
	return l
}

// loop is a sending and a receiving worker with a fake wire between.
type loop struct {
	tb       testing.TB
	from, to *worker
	wire     *fakeWire
	host     *capture
	tag      uint32 // of the last packet
}

// The sender's peers: what they take, and how much.
func loopPeers() []PeerSpec {
	l := []PeerSpec{
		{Name: "everything", Weft: true, Recv: Supported},
		{Name: "packed", Weft: true, Recv: RecvPack},
		{Name: "flannel"},
		{Name: "small", Weft: true, Recv: Supported, MTU: 1300},
		{Name: "far", Weft: true, Recv: Supported, Addr: addr("2001:db8::6")},
	}
	for i := range l {
		if n := i + 2; !l[i].Addr.IsValid() {
			l[i].Addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
		}
		l[i].Subnets = prefixes(fmt.Sprintf("10.1.%d.0/24", i+2), fmt.Sprintf("fd00:1:%d::/64", i+2))
	}
	return l
}

func newLoop(tb testing.TB, segs int, superHost bool) *loop {
	tb.Helper()
	l := &loop{tb: tb, from: newHotPath(tb, 0), to: newHotPath(tb, 0), wire: newFakeWire(tb, segs),
		host: &capture{tb: tb}}
	sends := Spec{Local: prefixes("10.1.1.0/24", "fd00:1:1::/64"), UnderlayMTU: 1500, Check: CheckStrict,
		Peers: loopPeers()}
	receives := Spec{UnderlayMTU: 1500, Check: CheckStrict, Peers: []PeerSpec{
		{Name: "sender", Addr: addr("192.0.2.1"), Sources: []netip.Addr{addr("2001:db8::1")}, Weft: true,
			Subnets: sends.Local}}}
	for _, p := range sends.Peers {
		receives.Local = append(receives.Local, p.Subnets...)
	}
	for w, s := range map[*worker]Spec{l.from: sends, l.to: receives} {
		t, err := NewTable(encap.FormatIP, s)
		if err != nil {
			tb.Fatal(err)
		}
		w.table = t
	}
	under := &attached{port: &runPort{w: l.wire.w}, role: RoleUnderlay,
		super: &OffloadSocket{runs: &runWriter{}}}
	under.super.(*OffloadSocket).runs.pcsum.set(OffloadPCsum, 0, true)
	l.from.set.under4, l.from.set.under6 = under, under
	l.to.set.host.port = l.host
	if superHost {
		l.to.set.host.super = &OffloadTUN{}
	}
	return l
}

// runPort is an underlay port of a run writer alone.
type runPort struct {
	Port
	w *runWriter
}

func (r *runPort) WriteBatch(ring *Ring, ps []*Packet) { r.w.writeRuns(ring, ps) }

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
	if p.partial, p.csumStart, p.csumOffset = true, l4, field; !partial && !super {
		p.complete0(n)
	}
	p.segSize = mss
	return n
}

// complete0 is complete for a packet of n bytes that is not committed yet.
func (p *Packet) complete0(n int) {
	encap.FinishChecksum(p.Space()[:n], p.csumStart, p.csumOffset)
	p.partial = false
}

// expected is a packet that was sent to a peer, as what should arrive.
type expected struct {
	packets   [][]byte
	delivered bool
}

// batch sends one batch and hands what crossed the wire to the receiver.
func (l *loop) batch(program []byte) {
	l.tb.Helper()
	l.from.ring.reset()
	for ; len(program) >= 3; program = program[3:] {
		p := l.from.ring.Slot()
		if p == nil {
			break
		}
		n := l.build(p, program[0], program[1], program[2])
		l.from.ring.Commit(n)
	}
	var want [][]expected
	for range loopPeers() {
		want = append(want, nil)
	}
	at := make([]int, l.from.ring.n)
	for i := range l.from.ring.batch() {
		p := &l.from.ring.slots[i]
		at[i] = int(p.Bytes()[18]) - 2
		if p.Bytes()[0]>>4 == 6 {
			at[i] = int(p.Bytes()[29]) - 2
		}
		want[at[i]] = append(want[at[i]], expected{packets: wholePackets(l.tb, p)})
	}
	l.wire.sends = l.wire.sends[:0]
	l.wire.w.gso.set(OffloadGSO, 0, true)
	l.from.move(false)

	seen := make([]int, len(want))
	for i := range l.from.ring.batch() {
		want[at[i]][seen[at[i]]].delivered = l.from.ring.slots[i].verdict == delivered
		seen[at[i]]++
	}
	l.host.got = nil
	l.receive()
	l.compare(want)
	var s Stats
	for _, w := range []*worker{l.from, l.to} {
		s = Stats{}
		w.totals.addTo(&s)
		for _, f := range []Flow{s.Egress, s.Ingress} {
			sum := f.Delivered
			for _, n := range f.Drops {
				sum += n
			}
			if sum != f.Received {
				l.tb.Fatalf("the books do not balance: %+v", f)
			}
		}
	}
	if s.Ingress.Delivered != s.Ingress.Received {
		l.tb.Fatalf("the receiver refused packets: %+v", s.Ingress)
	}
}

// receive reads what was sent as the sockets would.
func (l *loop) receive() {
	r := l.to.ring
	r.reset()
	for _, s := range l.wire.sends {
		if s.errno != 0 {
			continue
		}
		p := r.Slot()
		if p == nil {
			l.to.move(true)
			r.reset()
			p = r.Slot()
		}
		if p.Outer = netip.MustParseAddrPort("192.0.2.1:8285"); s.to.Addr().Is6() {
			p.Outer = netip.MustParseAddrPort("[2001:db8::1]:8285")
		}
		p.OuterECN = s.ecn
		if w := s.whole; w != nil {
			p.partial, p.csumStart, p.csumOffset, p.segSize = true, w.csumStart, w.csumOffset, w.segSize
			r.Commit(copy(p.Space(), w.Bytes()))
			continue
		}
		l.check(s)
		b := bytes.Join(s.datagrams, nil)
		if copy(p.Space(), b); len(s.datagrams) == 1 {
			r.Commit(len(b))
			continue
		}
		r.CommitRun(len(b), len(s.datagrams[0]))
	}
	l.to.move(true)
}

// check looks at what a peer must be able to take.
func (l *loop) check(s fakeSend) {
	l.tb.Helper()
	peer := l.from.table.senders[s.to.Addr()]
	for _, d := range s.datagrams {
		in, err := encap.ParseInner(d)
		if err != nil || len(d) > peer.maxSize {
			l.tb.Fatalf("%s gets a datagram of %d bytes: %v", peer.spec.Name, len(d), err)
		}
		if peer.spec.Recv&RecvPack == 0 && in.TotalLen != len(d) {
			l.tb.Fatalf("%s gets a datagram of several packets: %s", peer.spec.Name, datagramWords(d))
		}
		if peer.spec.Recv&RecvPCsum == 0 && !encap.ChecksumOK(d[:in.TotalLen], in) {
			l.tb.Fatalf("%s gets a wrong checksum", peer.spec.Name)
		}
		if !peer.spec.Weft && (s.ecn != encap.NotECT || in.Version == 6) {
			l.tb.Fatalf("%s gets IPv%d with outer ECN %d", peer.spec.Name, in.Version, s.ecn)
		}
	}
}

// compare sees that each peer got what was delivered, in order. What was refused is missing,
// but for parts of superpackets.
func (l *loop) compare(want [][]expected) {
	l.tb.Helper()
	got := make([][][]byte, len(want))
	for _, b := range l.host.got {
		k := int(b[18]) - 2
		if b[0]>>4 == 6 {
			k = int(b[29]) - 2
		}
		got[k] = append(got[k], b)
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
	l := newLoop(tb, []int{1, 64, 128}[mode%3], mode&4 != 0)
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
		n := min(len(rest), 3*maxReads)
		l.batch(rest[:n])
		rest = rest[n:]
	}
	for _, w := range []*worker{l.from, l.to} {
		_ = w.engine.workers[0].poll.free()
	}
}

// TestRunsArriveWhole sends random packets to peers of every kind and has the receiver's own
// code take them apart: what was delivered has arrived, in order for each peer, and nothing else.
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
