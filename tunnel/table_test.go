package tunnel

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix {
	return netip.MustParsePrefix(s)
}
func prefixes(ss ...string) (l []netip.Prefix) {
	for _, s := range ss {
		l = append(l, prefix(s))
	}
	return l
}

// testSpec is node A of a small dual-stack cluster.
func testSpec() Spec {
	return Spec{
		Local:    prefixes("10.1.1.0/24", "fd00:1:1::/64"),
		Address4: addr("10.1.1.0"), Address6: addr("fd00:1:1::"),
		Self:        []netip.Addr{addr("192.0.2.1")},
		UnderlayMTU: 1500,
		Check:       CheckStrict,
		Peers: []PeerSpec{
			{Name: "b", Addr: addr("192.0.2.2"), Weft: true, Subnets: prefixes("10.1.2.0/24", "fd00:1:2::/64"),
				InnerSources: []netip.Addr{addr("192.0.2.2")}},
			{Name: "flannel", Addr: addr("192.0.2.3"), Subnets: prefixes("10.1.3.0/24")},
			{Name: "small", Addr: addr("192.0.2.4"), Weft: true, MTU: 1300, Sources: []netip.Addr{addr("192.0.2.44")},
				Subnets: prefixes("10.1.4.0/24", "fd00:1:4::/64")},
		},
	}
}

func TestNewTableFaults(t *testing.T) {
	ok := PeerSpec{Name: "ok", Addr: addr("192.0.2.9"), Subnets: prefixes("10.1.9.0/24")}
	tests := map[string]struct {
		peer PeerSpec
		want string
	}{
		"no address":   {PeerSpec{Name: "x", Subnets: prefixes("10.1.8.0/24")}, "sent"},
		"unspecified":  {PeerSpec{Name: "x", Addr: addr("0.0.0.0")}, "sent"},
		"multicast":    {PeerSpec{Name: "x", Addr: addr("224.0.0.1")}, "sent"},
		"ours":         {PeerSpec{Name: "x", Addr: addr("192.0.2.1")}, "192.0.2.1"},
		"ours, mapped": {PeerSpec{Name: "x", Addr: addr("::ffff:192.0.2.1")}, "192.0.2.1"},
		"further source is ours": {PeerSpec{Name: "x", Addr: addr("192.0.2.8"),
			Sources: []netip.Addr{addr("192.0.2.1")}}, "192.0.2.1"},
		"another peer's": {PeerSpec{Name: "x", Addr: addr("192.0.2.9")}, "is ok's"},
		"overlaps another": {PeerSpec{Name: "x", Addr: addr("192.0.2.8"), Subnets: prefixes("10.1.8.0/23")},
			"overlaps"},
		"inside another": {PeerSpec{Name: "x", Addr: addr("192.0.2.8"), Subnets: prefixes("10.1.9.128/25")},
			"overlaps"},
		"overlaps ours": {PeerSpec{Name: "x", Addr: addr("192.0.2.8"), Subnets: prefixes("10.1.0.0/22")},
			"overlaps"},
		"everything": {PeerSpec{Name: "x", Addr: addr("192.0.2.8"), Subnets: prefixes("0.0.0.0/0")},
			"node's"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := Spec{Local: prefixes("10.1.1.0/24"), Self: []netip.Addr{addr("192.0.2.1")}, UnderlayMTU: 1500,
				Check: CheckStrict, Peers: []PeerSpec{ok, tt.peer}}
			table, err := NewTable(encap.FormatIP, s)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "peer x") {
				t.Fatalf("error %v, want one about peer x that says %q", err, tt.want)
			}
			if p, found := table.routes.Lookup(addr("10.1.9.7")); !found || p.spec.Name != "ok" ||
				len(table.peers) != 1 {
				t.Error("a bad peer cost more than itself")
			}
		})
	}
}

// A check that nobody has chosen means nothing: there is no table with it, nor after one that has.
func TestNoTableWithoutSourceCheck(t *testing.T) {
	good, err := NewTable(encap.FormatVXLAN, Spec{Check: CheckOff})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []SourceCheck{0, CheckOff + 1, 255} {
		s := testSpec()
		s.Check = c
		for _, f := range []encap.Format{encap.FormatIP, encap.FormatVXLAN} {
			if table, err := NewTable(f, s); table != nil || !errors.Is(err, ErrSourceCheck) {
				t.Errorf("%v: %v", c, err)
			}
		}
		if table, err := good.Next(s); table != nil || !errors.Is(err, ErrSourceCheck) {
			t.Errorf("%v after a good one: %v", c, err)
		}
	}
}

// TestLookupAgainstScan compares the table with the obvious linear search.
func TestLookupAgainstScan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := Spec{UnderlayMTU: 1500, Check: CheckStrict}
	for i := range 400 {
		n4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), 0}), 24)
		var b [16]byte
		b[0], b[6], b[7] = 0xfd, byte(i/256), byte(i)
		s.Peers = append(s.Peers, PeerSpec{
			Name: n4.String(), Weft: true,
			Addr:    netip.AddrFrom4([4]byte{192, 168, byte(i / 256), byte(i)}),
			Subnets: []netip.Prefix{n4, netip.PrefixFrom(netip.AddrFrom16(b), 64)},
		})
	}
	table, err := NewTable(encap.FormatIP, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 20000 {
		a := netip.AddrFrom4([4]byte{10, byte(rng.IntN(3)), byte(rng.Uint32()), byte(rng.Uint32())})
		if rng.IntN(2) == 0 {
			var b [16]byte
			b[0], b[6], b[7], b[15] = 0xfd, byte(rng.IntN(3)), byte(rng.Uint32()), byte(rng.Uint32())
			a = netip.AddrFrom16(b)
		}
		want := ""
		for _, p := range s.Peers {
			for _, n := range p.Subnets {
				if n.Contains(a) {
					want = p.Name
				}
			}
		}
		got := ""
		if p, ok := table.routes.Lookup(a); ok {
			got = p.spec.Name
		}
		if got != want {
			t.Fatalf("%v is at %q, want %q", a, got, want)
		}
	}
}

func TestSwapKeepsStateOfPeers(t *testing.T) {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285})
	if err != nil {
		t.Fatal(err)
	}
	first, err := NewTable(encap.FormatIP, testSpec())
	if err != nil {
		t.Fatal(err)
	}
	e.Swap(first)
	first.senders[addr("192.0.2.2")].state.txPackets.Store(7)
	s := testSpec()
	s.Peers[0].Subnets = prefixes("10.1.22.0/24") // another subnet at the same address
	s.Peers[1].Addr = addr("192.0.2.33")          // the same subnet at another
	second, err := first.Next(s)
	if err != nil {
		t.Fatal(err)
	}
	e.Swap(second)
	for _, p := range e.Peers() {
		want := uint64(0)
		if p.Name == "b" {
			want = 7
		}
		if p.TxPackets != want {
			t.Errorf("peer %s has sent %d after the swap, want %d", p.Name, p.TxPackets, want)
		}
	}
}

func TestMaxInner(t *testing.T) {
	table, err := NewTable(encap.FormatIP, testSpec())
	if err != nil {
		t.Fatal(err)
	}
	b, small := table.senders[addr("192.0.2.2")], table.senders[addr("192.0.2.44")]
	if got := b.maxInner(1); got != 1472 {
		t.Errorf("to b %d, want 1500 - 28", got)
	}
	if got := small.maxInner(1); got != 1300 {
		t.Errorf("to small %d, want the 1300 that it published", got)
	}
	b.state.path.Learn(b.spec.Addr, 1400, 1500, 1)
	if got := b.maxInner(2); got != 1372 {
		t.Errorf("to b after packet too big %d, want 1400 - 28", got)
	}
	hostile := testSpec()
	hostile.Peers[0].MTU = 1
	table, _ = NewTable(encap.FormatIP, hostile)
	if got := table.senders[addr("192.0.2.2")].maxInner(1); got != 1472 {
		t.Errorf("a record that claims MTU 1 gives %d, want it ignored", got)
	}
}

func TestNamesAreStable(t *testing.T) {
	if got := port.ParseRecv([]string{"pcsum", "from-the-future", "gso"}); got != port.RecvGSO|port.RecvPCsum {
		t.Errorf("ParseRecv = %v", got)
	}
	got := strings.Join((port.RecvGSO | port.RecvPCsum | port.RecvPack).Names(), ",")
	if got != "gso,pcsum,pack" {
		t.Errorf("Names = %s", got)
	}
	for _, c := range []SourceCheck{CheckStrict, CheckOuter, CheckOff} {
		if got, err := ParseSourceCheck(strings.ToUpper(c.String())); err != nil || got != c {
			t.Errorf("ParseSourceCheck(%v) = %v, %v", c, got, err)
		}
	}
	if _, err := ParseSourceCheck("maybe"); err == nil {
		t.Error("ParseSourceCheck accepts maybe")
	}
}

// TestNextIsNewTable: a table that follows another is the one that would be made anew, and each peer goes on
// counting.
func TestNextIsNewTable(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"nothing":         func(*Spec) {},
		"the MTU":         func(s *Spec) { s.UnderlayMTU = 1400 },
		"our own address": func(s *Spec) { s.Self = []netip.Addr{addr("192.0.2.7")} },
		"a name":          func(s *Spec) { s.Peers[0].Name = "other" },
		"a subnet":        func(s *Spec) { s.Peers[1].Subnets = prefixes("10.1.33.0/24") },
		"one more":        func(s *Spec) { s.Peers[1].Subnets = prefixes("10.1.3.0/24", "10.1.33.0/24") },
		"an inner source": func(s *Spec) { s.Peers[0].InnerSources[0] = addr("192.0.2.22") },
		"a sender":        func(s *Spec) { s.Peers[2].Sources = nil },
		"its MTU":         func(s *Spec) { s.Peers[2].MTU = 1350 },
		"what it parses":  func(s *Spec) { s.Peers[0].Recv = port.RecvGSO },
		"its MAC":         func(s *Spec) { s.Peers[0].MAC = encap.MAC{2, 0, 0, 0, 0, 9} },
		"flannel no more": func(s *Spec) { s.Peers[1].Weft = true },
		"one that goes":   func(s *Spec) { s.Peers = s.Peers[1:] },
		"a squatter": func(s *Spec) {
			s.Peers = append([]PeerSpec{{Name: "new", Addr: addr("192.0.2.5"), Subnets: prefixes("10.1.4.0/24")}},
				s.Peers...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := NewTable(encap.FormatIP, testSpec())
			if err != nil {
				t.Fatal(err)
			}
			s := testSpec()
			change(&s)
			want, errWant := NewTable(encap.FormatIP, s)
			got, errGot := before.Next(s)
			if (errWant == nil) != (errGot == nil) || len(got.peers) != len(want.peers) {
				t.Fatalf("%v and %d peers, want %v and %d", errGot, len(got.peers), errWant, len(want.peers))
			}
			for i, p := range got.peers {
				if was := before.senders[p.spec.Addr]; was != nil && p.state != was.state {
					t.Errorf("%s counts from 0", p.spec.Name)
				}
				a, b := *p, *want.peers[i]
				a.state, b.state = nil, nil
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%+v, want %+v", a, b)
				}
			}
			named := func(t *Table) map[string]string {
				all := map[string]string{}
				for a, p := range t.senders {
					all[a.String()] = p.spec.Name
				}
				for n, p := range t.routes.All() {
					all[n.String()] = p.spec.Name
				}
				return all
			}
			if got, want := named(got), named(want); !maps.Equal(got, want) {
				t.Errorf("senders and routes %v, want %v", got, want)
			}
		})
	}
}

// TestForgedOfLeftOut wants a source refused that is of a peer to whom there is no way: one that the table
// refuses, and one that it was told of.
func TestForgedOfLeftOut(t *testing.T) {
	self, local := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("10.244.1.0/24")
	s := Spec{
		Check: CheckStrict, Local: []netip.Prefix{local}, Self: []netip.Addr{self}, UnderlayMTU: 1500,
		Peers: []PeerSpec{
			{Name: "b", Addr: netip.MustParseAddr("192.0.2.2"),
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}},
			{Name: "c", Addr: self, Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}},
		},
		LeftOut: []PeerSpec{{Name: "d", Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.4.0/24"),
			local, {}}}},
	}
	table, err := NewTable(encap.FormatIP, s)
	if err == nil {
		t.Error("a peer at our own address is no fault")
	}
	for src, of := range map[string]string{"10.244.1.5": "", "10.244.2.5": "b", "10.244.3.5": "c",
		"10.244.4.5": "d", "10.244.5.5": ""} {
		name := ""
		if p := table.forged(netip.MustParseAddr(src)); p != nil {
			name = p.spec.Name
		}
		if name != of {
			t.Errorf("a source of %s is %q's, want %q", src, name, of)
		}
	}
	next, _ := table.Next(Spec{Check: CheckStrict, Local: s.Local})
	if next.forged(netip.MustParseAddr("10.244.4.5")) != nil {
		t.Error("the next table still knows who was left out")
	}
}
