package differ

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel"
)

// TestFormatIPMatchesModel gives the same packets to the engine, in format ip and over ports in memory, and to a model
// of what weft does with each. The model names what docs/deviations.md says that weft does otherwise than flannel.
func TestFormatIPMatchesModel(t *testing.T) {
	o := readOptions(t, 200_000)
	began := time.Now()
	m := newMemory(t, func(n uint64, d dice, b []byte) []byte {
		if n >= o.packets {
			return nil
		}
		d.reset(o.seed, n)
		return packetOfHostOrNode(d, b, n/64%2 == 0)
	})
	m.run(t)
	if m.fault != nil {
		m.blame(t)
		one := m.fault
		for size := len(one) - 1; size > 5; size-- { // without what is behind the headers
			if short := one[:size]; differsAlone(t, short) {
				one = short
			}
		}
		alone := newMemory(t, once(one))
		alone.run(t)
		t.Errorf("seed %d, packet %d; shortened (first byte: 0 for the host's, else the node's number; second byte: outer ECN)\n%x\n%s", o.seed, m.number, one, alone.says())
		if alone.fault == nil {
			t.Errorf("in its batch:\n%s", m.says())
		}
	}
	s := m.engine.Stats()
	for name, f := range map[string]tunnel.Flow{"egress": s.Egress, "ingress": s.Ingress} {
		sum := f.Delivered
		for _, n := range f.Drops {
			sum += n
		}
		if f.Received != sum {
			t.Errorf("%s: %d received, %d delivered and dropped", name, f.Received, sum)
		}
	}
	if got := s.ICMPSent + s.ICMPSuppressed; m.fault == nil && got != m.answers {
		t.Errorf("%d ICMP errors sent or withheld, want %d", got, m.answers)
	}
	t.Logf("seed %d: %d packets, %.0f a second, %d ICMP errors compared of %d; explained: %v", o.seed, m.packets, float64(m.packets)/time.Since(began).Seconds(), s.ICMPSent, m.answers, m.told)
}

// packetOfHostOrNode appends what goes into the engine: a byte that says from which node, 0 for the host, one with the outer ECN, and the packet.
func packetOfHostOrNode(d dice, b []byte, host bool) []byte {
	at := len(b) + 2
	if host {
		to := [...]byte{2, 2, 3, 3, 4, 4, 1, 9}[d.IntN(8)]
		most := 1500
		if d.one(16) {
			most = 4000
		}
		b = d.inner(append(b, 0, 0), d.one(3), ourNet, to, most)
		if d.one(16) {
			b = append(b, make([]byte, d.IntN(20))...)
		}
		if d.one(2) {
			b = d.mutate(b, at, 1+d.IntN(3))
		}
	} else {
		from := [...]byte{2, 2, 3, 3, 4, 4, 4, 5}[d.IntN(8)]
		b = d.inner(append(b, from, byte(d.IntN(2)*d.IntN(4))), d.one(3), from, ourNet, 1500)
		if d.one(64) {
			b[at+15], b[at+19] = 0, 0
		}
		switch d.IntN(16) {
		case 0:
			b = append(b, make([]byte, d.IntN(20))...)
		case 1:
			b = d.inner(b, d.one(3), from, ourNet, 500)
		}
		if d.one(2) {
			b = d.mutate(b, at, 1+d.IntN(3))
		}
	}
	if p := b[at:]; !d.one(4) && len(p) >= encap.IPv4Len && p[0]>>4 == 4 {
		sum4(p)
	}
	return b
}

// once feeds one packet.
func once(p []byte) func(uint64, dice, []byte) []byte {
	return func(n uint64, _ dice, b []byte) []byte {
		if n > 0 {
			return nil
		}
		return append(b, p...)
	}
}

func differsAlone(t *testing.T, p []byte) bool {
	m := newMemory(t, once(p))
	m.run(t)
	return m.fault != nil
}

// memory is an engine of one worker over two ports that are always readable. They make packets when they are read, and compare what was
// written since with what the model expects, all on the worker's goroutine.
type memory struct {
	engine     *tunnel.Engine
	host, wire memoryPort
	next       func(n uint64, d dice, b []byte) []byte
	dice       dice
	made       packets // of the batch
	waiting    []byte  // one that is for the other port
	spare      []byte
	want       packets // what is expected at the host's port, and with an address and ECN in front at the wire's
	got        packets
	icmp       packets // answers that are expected, some of which the limit withholds
	gotICMP    packets
	number     uint64 // of the next packet
	packets    uint64
	answers    uint64
	told       map[flannelReason]uint64
	fault      []byte // a packet that differs
	done       chan struct{}
	ended      bool
}

type memoryPort struct {
	m    *memory
	host bool
	fd   int
}

func newMemory(t *testing.T, next func(uint64, dice, []byte) []byte) *memory {
	t.Helper()
	m := &memory{next: next, dice: newDice(), told: map[flannelReason]uint64{}, done: make(chan struct{})}
	for _, p := range []*memoryPort{&m.host, &m.wire} {
		fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // never read, and so always readable
		if err != nil {
			t.Fatal(err)
		}
		*p = memoryPort{m, p == &m.host, fd}
	}
	var err error
	if m.engine, err = tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: proxyPort, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	s := tunnel.Spec{
		Local:    []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1:100::/64")},
		Address4: netip.MustParseAddr("10.1.1.0"), Address6: netip.MustParseAddr("fd00:1:100::"),
		Self: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, UnderlayMTU: 1500, Check: tunnel.CheckStrict,
	}
	for _, n := range nodes {
		subnet := netip.AddrFrom16([16]byte{0xfd, 0, 0, 1, 0, n.number})
		p := tunnel.PeerSpec{Name: string('a' + rune(n.number)), Addr: n.outer().Addr(), Weft: n.weft,
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, n.number, 0}), 24), netip.PrefixFrom(subnet, 64)}}
		if n.limit < 1472 {
			p.MTU = n.limit
		}
		s.Peers = append(s.Peers, p)
	}
	s.Local[1] = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 1, 0, ourNet}), 64)
	s.Address6 = s.Local[1].Addr()
	table, err := tunnel.NewTable(encap.FormatIP, s)
	if err != nil {
		t.Fatal(err)
	}
	m.engine.Swap(table)
	if _, err := m.engine.Attach(&m.host, tunnel.RoleHost); err != nil {
		t.Fatal(err)
	}
	if _, err := m.engine.Attach(&m.wire, tunnel.RoleUnderlay); err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs the engine until all packets are through, or one differs.
func (m *memory) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.engine.Run(ctx) }()
	select {
	case <-m.done:
	case err := <-ended:
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// PollFD implements tunnel.Port.
func (p *memoryPort) PollFD() int { return p.fd }

// Close implements tunnel.Port.
func (p *memoryPort) Close() error { return unix.Close(p.fd) }

// LocalAddr implements tunnel.Underlay.
func (p *memoryPort) LocalAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:8285") }

// ReadBatch implements tunnel.Port.
func (p *memoryPort) ReadBatch(r *tunnel.Ring) error {
	m := p.m
	if m.ended {
		return nil
	}
	if !m.compare() {
		m.end()
		return nil
	}
	for {
		s := r.Slot()
		if s == nil {
			return nil
		}
		if m.waiting == nil {
			b := m.next(m.number, m.dice, m.spare[:0])
			if b == nil {
				if m.made.len() == 0 {
					m.end()
				}
				return nil
			}
			m.number++
			m.spare, m.waiting = b, b
		}
		if p.host != (m.waiting[0] == 0) {
			return nil // the other port's
		}
		m.expect(m.waiting)
		if !p.host {
			s.Outer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, m.waiting[0]}), 40000)
			s.OuterECN = encap.ECN(m.waiting[1])
		}
		r.Commit(copy(s.Space(), m.waiting[2:]))
		m.waiting = nil
	}
}

func (m *memory) end() {
	m.ended = true
	close(m.done)
}

// expect notes a packet of the batch and what is to come of it.
func (m *memory) expect(b []byte) {
	m.made.add(b)
	m.packets++
	var d did
	var why flannelReason
	if b[0] == 0 {
		d, why = weftOut(b[2:])
	} else {
		d, why = weftIn(b[0], b[1], b[2:])
	}
	m.told[why]++
	if d.sent != nil {
		m.expectSent(d, d.sent)
	}
	for _, out := range d.more {
		m.expectSent(d, out)
	}
	if d.icmp != nil {
		m.answers++
		m.icmp.add(d.icmp)
	}
}

func (m *memory) expectSent(d did, out []byte) {
	m.want.data = append(m.want.data, d.to, d.ecn)
	m.want.add(out)
}

// WriteBatch implements tunnel.Port.
func (p *memoryPort) WriteBatch(_ *tunnel.Ring, ps []*tunnel.Packet) {
	for _, s := range ps {
		switch b := s.Datagram(); {
		case !p.host:
			a := s.Outer.Addr().As4()
			p.m.got.data = append(p.m.got.data, a[3], byte(s.OuterECN))
			p.m.got.add(b)
		case p.m.made.len() > 0 && p.m.made.at(0)[0] == 0: // packets of the host are being read: this answers one
			p.m.gotICMP.add(b)
		default:
			p.m.got.data = append(p.m.got.data, 0, 0)
			p.m.got.add(b)
		}
		s.Delivered()
	}
}

// compare compares what was written since the last call with what was expected, and begins another batch. After a difference it leaves the
// batch as it is.
func (m *memory) compare() bool {
	same := m.fault == nil && bytes.Equal(m.want.data, m.got.data)
	at := 0
	for i := range m.gotICMP.len() { // some are withheld, none is another
		for at < m.icmp.len() && !bytes.Equal(m.gotICMP.at(i), m.icmp.at(at)) {
			at++
		}
		same = same && at < m.icmp.len()
		at++
	}
	if !same {
		if m.fault == nil {
			m.fault = bytes.Clone(m.made.at(0))
		}
		return false
	}
	for _, p := range []*packets{&m.made, &m.want, &m.got, &m.icmp, &m.gotICMP} {
		p.reset()
	}
	return true
}

// blame finds the packet that differs in the batch in which the engine has ended.
func (m *memory) blame(t *testing.T) {
	t.Helper()
	for i := range m.made.len() {
		if differsAlone(t, m.made.at(i)) {
			m.fault, m.number = bytes.Clone(m.made.at(i)), m.number-uint64(m.made.len()-i)
			return
		}
	}
	t.Errorf("a batch differs, and none of its packets by itself")
}

// says is what was wanted, and what came.
func (m *memory) says() string {
	return describe("want", &m.want) + describe("got ", &m.got) + describe("want ICMP", &m.icmp) + describe("got ICMP ", &m.gotICMP)
}

func describe(what string, p *packets) (s string) {
	for i := range p.len() {
		s += fmt.Sprintf("%s %x\n", what, p.at(i))
	}
	return s
}
