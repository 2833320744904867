package natflow

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"testing"
)

// udpFlow makes UDP flows to one client that are told apart by their ports.
func udpFlow(port int) flow {
	return flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 17, sport: 53,
		dport: uint16(port), asks: true}
}

func (t *Table) has(f flow, sec int64) bool { return t.sets.Load().find(f.tag(t.seed), sec) != nil }

// TestEntriesEnd: each ends when the host's connection tracking has forgotten its flow too.
func TestEntriesEnd(t *testing.T) {
	tcp := flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 6, sport: 80,
		dport: 4000}
	syn, fin, reset := tcp, tcp, tcp
	syn.syn, fin.fin, reset.rst = true, true, true
	echo := tcp
	echo.proto = 1
	for name, tt := range map[string]struct {
		packets []flow
		lasts   int64
	}{
		"half-open":                  {[]flow{syn}, lifeHalfOpen},
		"established":                {[]flow{syn, tcp}, lifeTCP},
		"taken up in the middle":     {[]flow{tcp}, lifeTCP},
		"closing":                    {[]flow{syn, tcp, fin}, lifeClosing},
		"closing, acknowledged":      {[]flow{syn, tcp, fin, tcp}, lifeClosing},
		"reset":                      {[]flow{syn, tcp, reset}, lifeReset},
		"again after it was closing": {[]flow{syn, fin, syn, tcp}, lifeTCP},
		"UDP":                        {[]flow{udpFlow(1)}, lifeUDP},
		"echo":                       {[]flow{echo}, lifeEcho},
	} {
		r := New()
		for i, f := range tt.packets {
			r.enter(f, int64(i))
		}
		last := int64(len(tt.packets)-1) + tt.lasts
		f := tt.packets[0]
		if !r.has(f, last-1) || r.has(f, last) {
			t.Errorf("%s: known at %d: %v, and at %d: %v", name, last-1, r.has(f, last-1), last,
				r.has(f, last))
		}
		r.enter(f, 0)
		r.forget(f.tag(r.seed), 0)
		if r.has(f, 0) {
			t.Errorf("%s: it is known although it was forgotten", name)
		}
	}
}

// newTable is a table of 8,192 flows.
func newTable() *Table {
	r := New()
	r.sets.Store(newSets(1024))
	return r
}

// TestEntriesAreBounded floods a table: flows stay while there is room, connections outlive the
// flood, and another client's flow does, too.
func TestEntriesAreBounded(t *testing.T) {
	r := newTable()
	other := udpFlow(1)
	other.dst = netip.MustParseAddr("10.1.1.7")
	r.enter(other, 0)
	for i := range 500 {
		r.enter(udpFlow(i), 0)
	}
	for i := range 500 {
		if !r.has(udpFlow(i), 0) {
			t.Fatalf("flow %d of 500 is not known", i)
		}
	}
	connection := flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 6,
		sport: 80, dport: 4000}
	r.enter(connection, 1)
	for i := range 60000 {
		r.enter(udpFlow(i), 1)
	}
	if !r.has(connection, 1) || !r.has(other, 1) {
		t.Error("the flood took the place of a connection, or of another client's flow")
	}
	if got := testing.AllocsPerRun(100, func() { r.enter(udpFlow(70000), 2) }); got > 0 {
		t.Errorf("%.1f allocations for a flow in a full table", got)
	}
}

// TestEntriesFromSeveralWorkers: a flow is known once it was entered, and so is its client, though
// others are entered at the same time, the first ones into no table yet.
func TestEntriesFromSeveralWorkers(t *testing.T) {
	r := New()
	var wg sync.WaitGroup
	const each = 200
	for w := range 4 {
		wg.Go(func() {
			for i := range each {
				f := udpFlow(w*each + i)
				if r.enter(f, 0); !r.has(f, 0) || !r.Knows(f.dst) {
					t.Errorf("flow %d of worker %d is not known though it was just entered", i, w)
				}
			}
		})
	}
	wg.Wait()
	if r.Knows(netip.MustParseAddr("10.1.1.7")) {
		t.Error("a client without flows has some")
	}
}

// TestEntriesAreClaimed: an entry that somebody has taken is nobody else's, though its tag is not in it
// yet.
func TestEntriesAreClaimed(t *testing.T) {
	var s set
	seed := maphash.MakeSeed()
	old := udpFlow(1)
	taken, life := s.oldest()
	if !taken.claim(life) {
		t.Fatal("a free entry cannot be claimed")
	}
	taken.assign(old.tag(seed), old.extended(0, 0))
	if !taken.claim(taken.life.Load()) {
		t.Fatal("an entry cannot be claimed")
	}
	taken.touch(old.tag(seed), &old, 0)
	if got := taken.life.Load(); got != claimed || s.find(old.tag(seed), 0) != nil {
		t.Errorf("the flow that had the entry finds it or lengthens its life, to %#x, after another has claimed it",
			got)
	}
	for range ways - 1 {
		e, life := s.oldest()
		if e == taken || !e.claim(life) {
			t.Fatal("an entry that was claimed is claimed again")
		}
	}
	if e, life := s.oldest(); e.claim(life) {
		t.Error("all entries were claimed, and one could be claimed again")
	}
}

// TestEntriesOfOneSet: a set has room for as many flows as it has entries, whoever enters them at the
// same moment.
func TestEntriesOfOneSet(t *testing.T) {
	for round := range 500 {
		r := New()
		r.sets.Store(newSets(1))
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range ways {
			done.Go(func() {
				start.Wait()
				r.enter(udpFlow(i), 0)
			})
		}
		start.Done()
		done.Wait()
		for i := range ways {
			if !r.has(udpFlow(i), 0) {
				t.Fatalf("round %d: flow %d of %d is not known", round, i, ways)
			}
		}
		gone := udpFlow(0)
		r.forget(gone.tag(r.seed), 0)
		r.enter(udpFlow(ways), 0)
		for i := range ways {
			if !r.has(udpFlow(1+i), 0) {
				t.Fatalf("round %d: flow %d did not get the entry of one that was forgotten, or took another's",
					round, 1+i)
			}
		}
	}
}

// TestEntriesOfAPeersPods: a pod of a peer that opens more flows than there is room for, even
// connections that have been established, ends its own, and those of the peer's other pods stay, though they
// are older and would end before.
func TestEntriesOfAPeersPods(t *testing.T) {
	r := newTable()
	flood := flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.2.5"),
		proto: 6, sport: 80}
	var valid []flow
	for pod := range 8 {
		for i := range 20 {
			f := udpFlow(i)
			f.dst = netip.AddrFrom4([4]byte{10, 1, 2, byte(10 + pod)})
			valid = append(valid, f)
		}
	}
	enter := func(from, to int) {
		for i := from; i < to; i++ {
			f := flood
			f.dport = uint16(i)
			f.src = netip.AddrFrom4([4]byte{10, 1, 3, byte(i >> 16)})
			r.enter(f, 1)
		}
	}
	enter(0, 30000) // it came first
	for _, f := range valid {
		r.enter(f, 0)
	}
	enter(30000, 120000)
	lost := 0
	for _, f := range valid {
		if !r.has(f, 1) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d flows of other pods are lost", lost, len(valid))
	}
	if got := testing.AllocsPerRun(100, func() { enter(7, 8) }); got > 0 {
		t.Errorf("%.1f allocations for a flow in a full table", got)
	}
}
