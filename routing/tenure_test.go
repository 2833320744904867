package routing

import (
	"fmt"
	"maps"
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
	types := map[string]func(s situation) (used []string, skipped []Skipped, after tenure){
		"udp": func(s situation) ([]string, []Skipped, tenure) {
			for i := range s.set.Peers {
				s.set.Peers[i].BackendType = ""
			}
			s.outer = 1500
			c := (&udp{ipv6: true}).want(s)
			return holders(*c.spec), c.skipped(), c.tenure
		},
		"vxlan in user space": func(s situation) ([]string, []Skipped, tenure) {
			s.outer = 1500
			c := userVTEP{vxlan: testVXLAN(false)}.want(s)
			return holders(*c.spec), c.skipped(), c.tenure
		},
		"vxlan by the kernel": func(s situation) ([]string, []Skipped, tenure) {
			d := testVXLAN(false).want(s)
			var used []string
			for _, f := range d.FDBs {
				used = append(used, fmt.Sprintf("%v %v", f.MAC, f.Dst))
			}
			return used, skippedOf(d.reached), d.tenure
		},
	}
	for kind, run := range types {
		for what, steal := range steals {
			t.Run(kind+", "+what, func(t *testing.T) {
				at := func(before tenure, rs ...lease.Record) ([]string, []Skipped, tenure) {
					s := vxlanSituation()
					s.tenure = before
					s.set.Peers = rs
					return run(s)
				}
				own := func(r *lease.Record) { r.Weft.Addrs = []netip.Addr{addr("192.0.2.77"), addr("2001:db8::77")} }
				victim, thief := claimant(7, 50, own), claimant(3, 60, steal)
				alone, skipped, running := at(nil, victim)
				if len(alone) == 0 || len(skipped) > 0 {
					t.Fatalf("alone: %v, %+v", alone, skipped)
				}
				keeps := func(when string, before tenure, rs ...lease.Record) tenure {
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
func TestSettleIsDeterministic(t *testing.T) {
	a := func(n int) claim { return claim{addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})} }
	sub := func(n int) lease.Subnets { return claimant(n, 0, nil).Subnets }
	bs := []bidder{
		{sub(1), 0, a(1), []claim{a(9)}}, // does not say how old it is
		{sub(2), 5, a(1), []claim{a(8)}}, // so this one is older
		{sub(3), 7, a(9), []claim{a(1)}}, // a first claim before the further one
		{sub(4), 6, a(4), []claim{a(3), a(8)}},
	}
	grants, after := settle(bs, nil)
	if got := fmt.Sprint(grants); got != "[{1 []} {1 []} {2 [[0 1]]} {3 [[1 1]]}]" {
		t.Error(got)
	}
	if again, _ := settle(bs, after); fmt.Sprint(again) != fmt.Sprint(grants) {
		t.Errorf("then %v", again)
	}
	if len(after) != 5 || after[a(3)] != sub(4) || after[a(8)] != sub(2) {
		t.Error(maps.Collect(maps.All(after)))
	}
	// One that gives its address up for another's has no right to it, nor to what it had besides.
	bs[3].first = a(1)
	if grants, _ = settle(bs, after); grants[3].by != 1 {
		t.Errorf("%v", grants)
	}
}
