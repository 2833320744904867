package tunnel

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

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
