package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/tunnel"
)

// claimant is a record of a node N, reached at 192.0.2.N and 2001:db8::N unless edited.
func claimant(n int, created int64, edit func(*lease.Record)) lease.Record {
	r := lease.Record{Created: created, Subnets: lease.Subnets{V4: pfx(fmt.Sprintf("10.5.%d.0/24", n)),
		V6: pfx(fmt.Sprintf("fd00:5:0:%x::/64", n))}}
	r.PublicIP, r.PublicIPv6 = addr(fmt.Sprintf("192.0.2.%d", n)), addr(fmt.Sprintf("2001:db8::%d", n))
	r.Weft = &lease.Weft{Node: fmt.Sprintf("node%d", n)}
	r.BackendType = typeVXLAN
	r.BackendData, r.BackendV6Data = vtepData(1, kernel.MAC{2, 4, 5: byte(n)}),
		vtepData(1, kernel.MAC{2, 6, 5: byte(n)})
	if edit != nil {
		edit(&r)
	}
	return r
}

// A record that says what another one says, and has been believed for, takes nothing from it: not in the
// table that runs, and with none running only if it is the older. When the other's goes it is let in.
func TestNobodyIsDisplaced(t *testing.T) {
	steals := map[string]func(*lease.Record){
		"PublicIP and PublicIPv6": func(r *lease.Record) {
			r.PublicIP, r.PublicIPv6 = addr("192.0.2.7"), addr("2001:db8::7")
		},
		"its own address, which the other lists": func(r *lease.Record) {
			r.PublicIP, r.PublicIPv6 = addr("192.0.2.77"), addr("2001:db8::77")
		},
		"Weft.Addrs": func(r *lease.Record) {
			r.Weft.Addrs = []netip.Addr{addr("192.0.2.7"), addr("2001:db8::7"), addr("192.0.2.77"),
				addr("2001:db8::77")}
		},
		"VtepMAC": func(r *lease.Record) {
			r.BackendData, r.BackendV6Data = claimant(7, 0, nil).BackendData, claimant(7, 0, nil).BackendV6Data
		},
	}
	types := map[string]func(s situation) (used []string, skipped []Skipped, after claims){
		"udp": func(s situation) ([]string, []Skipped, claims) {
			for i := range s.set.Peers {
				s.set.Peers[i].BackendType = ""
			}
			s.outer = 1500
			c := (&udp{ipv6: true}).want(s)
			return holders(*c.spec), c.skipped(), c.claims
		},
		"vxlan in user space": func(s situation) ([]string, []Skipped, claims) {
			s.outer = 1500
			c := testVXLAN(false).inUserSpace("", "").want(s)
			return holders(*c.spec), c.skipped(), c.claims
		},
		"vxlan by the kernel": func(s situation) ([]string, []Skipped, claims) {
			d := testVXLAN(false).want(s)
			var used []string
			for _, f := range d.FDBs {
				used = append(used, fmt.Sprintf("%v %v", f.MAC, f.Dst))
			}
			return used, d.skipped(), d.claims
		},
	}
	for kind, run := range types {
		for what, steal := range steals {
			t.Run(kind+", "+what, func(t *testing.T) {
				at := func(before claims, rs ...lease.Record) ([]string, []Skipped, claims) {
					s := vxlanSituation()
					s.claims = before
					s.set.Peers = rs
					return run(s)
				}
				own := func(r *lease.Record) { r.Weft.Addrs = []netip.Addr{addr("192.0.2.77"), addr("2001:db8::77")} }
				victim, thief := claimant(7, 50, own), claimant(3, 60, steal)
				alone, skipped, running := at(nil, victim)
				if len(alone) == 0 || len(skipped) > 0 {
					t.Fatalf("alone: %v, %+v", alone, skipped)
				}
				keeps := func(when string, before claims, rs ...lease.Record) claims {
					t.Helper()
					used, skipped, after := at(before, rs...)
					for _, u := range alone {
						if !slices.Contains(used, u) {
							t.Errorf("%s: %q is gone, there are %q; skipped %+v", when, u, used, skipped)
						}
					}
					for _, s := range skipped {
						if s.Subnets != thief.Subnets || s.Peer != "node3" || !strings.Contains(s.Reason, "node7") {
							t.Errorf("%s: %+v", when, s)
						}
					}
					return after
				}
				keeps("newcomer", running, thief, victim)
				after := keeps("newcomer, twice", keeps("newcomer", running, thief, victim), thief, victim)
				if !strings.HasPrefix(what, "its own") { // what a record cannot do without counts more than what it lists
					keeps("first start", nil, thief, victim)
					renewed := victim
					renewed.Revision = 1000
					keeps("first start after a renewal", nil, thief, renewed)
				}
				older := thief
				older.Created = 1
				keeps("an older record that has been changed", running, older, victim)
				six := victim
				six.V6 = netip.Prefix{}
				_, _, one := at(nil, six)
				if kind == "udp" { // one peer for both families
					keeps("the other family is turned on", one, thief, victim)
				}
				// Nobody is there any more that has it.
				used, skipped, _ := at(after, thief)
				fresh, _, _ := at(nil, thief)
				if len(skipped) > 0 || !slices.Equal(used, fresh) {
					t.Errorf("when the other is gone: %q, %+v, want %q", used, skipped, fresh)
				}
			})
		}
	}
}

// holders are the outer addresses in a table, with whose they are.
func holders(s tunnel.Spec) (out []string) {
	for _, p := range s.Peers {
		for _, a := range append([]netip.Addr{p.Addr}, p.Sources...) {
			out = append(out, fmt.Sprintf("%v %s %v", a, p.Name, p.Subnets))
		}
	}
	return out
}

// The same is decided whatever the order of what is equally old.
func TestAssignIsDeterministic(t *testing.T) {
	a := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	of := func(n int, created int64, needs int, sources ...int) way {
		r := claimant(n, created, nil)
		w := way{r: &r, Reached: Reached{Peer: fmt.Sprint(n), Subnets: r.Subnets}, needs: claim{addr: a(needs)}}
		for _, s := range sources {
			w.sources = append(w.sources, a(s))
		}
		return w
	}
	assigned := func(before claims, ws ...way) (string, claims) {
		d := desired{ways: ws}
		d.assign(situation{claims: before})
		var got []string
		for i := range d.ways {
			w := &d.ways[i]
			if got = append(got, fmt.Sprint(w.Peer, w.sources)); w.How == HowSkipped {
				got[i] = w.Peer + " without"
			}
		}
		return strings.Join(got, ", "), d.claims
	}
	all := func() []way {
		return []way{
			of(1, 0, 1, 9), // does not say how old it is
			of(2, 5, 1, 8), // so this one is older
			of(3, 7, 9, 1), // what is needed before the further one
			of(4, 6, 4, 3, 8),
		}
	}
	const want = "1 without, 2[192.0.2.8], 3[], 4[192.0.2.3]"
	got, after := assigned(nil, all()...)
	if again, _ := assigned(after, all()...); got != want || again != want {
		t.Errorf("%s, then %s", got, again)
	}
	if len(after) != 5 || after[claim{addr: a(3)}] != claimant(4, 0, nil).Subnets ||
		after[claim{addr: a(8)}] != claimant(2, 0, nil).Subnets {
		t.Error(after)
	}
	// One that gives its address up for another's has no right to it, nor to what it had besides.
	ws := all()
	ws[3].needs = claim{addr: a(1)}
	if got, _ := assigned(after, ws...); !strings.HasSuffix(got, "4 without") {
		t.Error(got)
	}
}
