package tunnel

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// Next is NewTable, whatever was before; peers that are the same are shared, and no others; each goes
// on counting.
func TestNextIsNewTable(t *testing.T) {
	mac := encap.MAC{2, 0, 0, 0, 0, 9}
	changes := map[string]struct {
		change func(*Spec)
		shared []string
	}{
		"nothing": {func(*Spec) {}, []string{"b", "flannel", "small"}},
		"the MTU": {func(s *Spec) { s.UnderlayMTU = 1400 }, nil},
		"our own address": {func(s *Spec) { s.Self = []netip.Addr{addr("192.0.2.7")} },
			[]string{"b", "flannel", "small"}},
		"a name": {func(s *Spec) { s.Peers[0].Name = "other" }, []string{"flannel", "small"}},
		"a subnet": {func(s *Spec) { s.Peers[1].Subnets = prefixes("10.1.33.0/24") },
			[]string{"b", "small"}},
		"one more": {func(s *Spec) { s.Peers[1].Subnets = prefixes("10.1.3.0/24", "10.1.33.0/24") },
			[]string{"b", "small"}},
		"an inner source": {func(s *Spec) { s.Peers[0].InnerSources[0] = addr("192.0.2.22") },
			[]string{"flannel", "small"}},
		"a sender":        {func(s *Spec) { s.Peers[2].Sources = nil }, []string{"b", "flannel"}},
		"its MTU":         {func(s *Spec) { s.Peers[2].MTU = 1350 }, []string{"b", "flannel"}},
		"what it parses":  {func(s *Spec) { s.Peers[0].Recv = port.RecvGSO }, []string{"flannel", "small"}},
		"its MAC":         {func(s *Spec) { s.Peers[0].MAC = mac }, []string{"flannel", "small"}},
		"flannel no more": {func(s *Spec) { s.Peers[1].Weft = true }, []string{"b", "small"}},
		"one that goes":   {func(s *Spec) { s.Peers = s.Peers[1:] }, []string{"flannel", "small"}},
		"a squatter": {func(s *Spec) {
			s.Peers = append([]PeerSpec{{Name: "new", Addr: addr("192.0.2.5"), Subnets: prefixes("10.1.4.0/24")}},
				s.Peers...)
		}, []string{"b", "flannel"}},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			before, err := NewTable(encap.FormatIP, testSpec())
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range before.peers {
				p.state.txPackets.Store(uint64(i + 1))
			}
			s := testSpec()
			c.change(&s)
			want, errWant := NewTable(encap.FormatIP, s)
			got, errGot := before.Next(s)
			if (errWant == nil) != (errGot == nil) || len(got.peers) != len(want.peers) ||
				len(got.senders) != len(want.senders) {
				t.Fatalf("%v and %d peers, want %v and %d", errGot, len(got.peers), errWant, len(want.peers))
			}
			var shared []string
			for i, p := range got.peers {
				if slices.Contains(before.peers, p) {
					shared = append(shared, p.spec.Name)
				}
				if was := before.senders[p.spec.Addr]; was != nil && p.state != was.state {
					t.Errorf("%s counts from 0", p.spec.Name)
				}
				a, b := *p, *want.peers[i]
				a.state, b.state = nil, nil
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%+v, want %+v", a, b)
				}
			}
			if !slices.Equal(shared, c.shared) {
				t.Errorf("shared are %q, want %q", shared, c.shared)
			}
			for a, p := range want.senders {
				if got.senders[a] == nil || got.senders[a].spec.Name != p.spec.Name {
					t.Errorf("%s is not %s's", a, p.spec.Name)
				}
			}
			for _, n := range want.routes.All() {
				found := false
				for _, m := range got.routes.All() {
					found = found || m.spec.Name == n.spec.Name
				}
				if !found {
					t.Errorf("no route to %s", n.spec.Name)
				}
			}
		})
	}
}

// BenchmarkNextTable is one changed record among many.
func BenchmarkNextTable(b *testing.B) {
	s := Spec{UnderlayMTU: 1500, Check: CheckStrict}
	for i := range 10_000 {
		outer := netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)})
		s.Peers = append(s.Peers, PeerSpec{
			Name: "peer", Addr: outer, Weft: true, MTU: 1450, InnerSources: []netip.Addr{outer},
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		})
	}
	t, err := NewTable(encap.FormatIP, s)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Peers[5000].MTU = 1400 + i%2
		if t, err = t.Next(s); err != nil {
			b.Fatal(err)
		}
	}
}
