package tunnel

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"testing"
)

// udpFlow makes UDP flows to one client that are told apart by their ports.
func udpFlow(port int) flow {
	return flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 17, sport: 53, dport: uint16(port), asks: true}
}

func (r *returns) has(f flow, seed maphash.Seed, sec int64) bool {
	return r.table.Load().find(f.tag(seed), sec) != nil
}

func (r *returns) enter(f flow, seed maphash.Seed, sec int64) { r.open(f.tag(seed), &f, sec) }

// TestReturnEntriesEnd: each ends when the host's connection tracking has forgotten its flow too.
func TestReturnEntriesEnd(t *testing.T) {
	seed := maphash.MakeSeed()
	tcp := flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 6, sport: 80, dport: 4000}
	syn, fin, reset := tcp, tcp, tcp
	syn.syn, fin.fin, reset.rest = true, true, true
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
		var r returns
		for i, f := range tt.packets {
			r.enter(f, seed, int64(i))
		}
		last := int64(len(tt.packets)-1) + tt.lasts
		f := tt.packets[0]
		if !r.has(f, seed, last-1) || r.has(f, seed, last) {
			t.Errorf("%s: known at %d: %v, and at %d: %v", name, last-1, r.has(f, seed, last-1), last, r.has(f, seed, last))
		}
		r.enter(f, seed, 0)
		r.forget(f.tag(seed), 0)
		if r.has(f, seed, 0) {
			t.Errorf("%s: it is known although it was forgotten", name)
		}
	}
}

// TestReturnEntriesAreBounded floods a table: it grows to its bound and no further, connections outlive the flood, and another client's
// entries are none of its business.
func TestReturnEntriesAreBounded(t *testing.T) {
	seed := maphash.MakeSeed()
	var hostile, other returns
	other.enter(udpFlow(1), seed, 0)
	for i := range 500 { // they stay as long as there is room at all
		hostile.enter(udpFlow(i), seed, 0)
	}
	for i := range 500 {
		if !hostile.has(udpFlow(i), seed, 0) {
			t.Fatalf("flow %d of 500 is not known, with %d sets", i, len(hostile.table.Load().sets))
		}
	}
	connection := flow{src: netip.MustParseAddr("10.1.1.6"), dst: netip.MustParseAddr("10.1.1.5"), proto: 6, sport: 80, dport: 4000}
	hostile.enter(connection, seed, 1)
	for i := range 60000 {
		hostile.enter(udpFlow(i), seed, 1)
	}
	if got := len(hostile.table.Load().sets); got != mostSets {
		t.Errorf("the table has %d sets, want %d", got, mostSets)
	}
	if !hostile.has(connection, seed, 1) || !other.has(udpFlow(1), seed, 1) {
		t.Error("the flood took the place of a connection, or of another client's flow")
	}
	if got := testing.AllocsPerRun(100, func() { hostile.enter(udpFlow(70000), seed, 2) }); got > 0 {
		t.Errorf("%.1f allocations for a flow in a full table", got)
	}
}

// TestReturnEntriesFromSeveralWorkers: none is lost for good while the table grows under them.
func TestReturnEntriesFromSeveralWorkers(t *testing.T) {
	seed := maphash.MakeSeed()
	var r returns
	var wg sync.WaitGroup
	const each = 200
	for w := range 4 {
		wg.Go(func() {
			for i := range each {
				f := udpFlow(w*each + i)
				// Who takes an entry writes its end a moment later, in which another may take it as the oldest: a flow's next packet enters it again.
				known := false
				for range 4 {
					if r.enter(f, seed, 0); r.has(f, seed, 0) {
						known = true
						break
					}
				}
				if !known {
					t.Errorf("flow %d of worker %d is not known though it was just entered, four times", i, w)
				}
			}
		})
	}
	wg.Wait()
}
