package tunnel_test

import (
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// TestOutlets sends superpackets by each outlet: all of them leave by the one that was set, and every packet
// arrives.
func TestOutlets(t *testing.T) {
	o, run := resting(t, path{raw: true})
	run()
	o.warmUp(t)
	const segments, size, n = 46, 1380, 24
	carry := func(out port.Outlet) (whole, runs uint64) {
		o.raws[0].SetOutlet(port.OutletChoice{Outlet: out})
		before := [2]uint64{o.used(0, port.OffloadTunnel).Segments, o.used(0, port.OffloadGSO).Segments}
		for range n {
			arrived := o.engines[1].Stats().Ingress.Delivered
			o.injectSuper(t, encap.ProtoTCP, false, segments, size)
			o.arrive(t, arrived+segments)
		}
		return (o.used(0, port.OffloadTunnel).Segments - before[0]) / segments,
			o.used(0, port.OffloadGSO).Segments - before[1]
	}
	if whole, runs := carry(port.OutletWhole); whole != n || runs != 0 {
		t.Errorf("whole: %d left whole, and %d packets in runs", whole, runs)
	}
	if whole, runs := carry(port.OutletRuns); whole != 0 || runs != n*segments {
		t.Errorf("runs: %d left whole, and %d packets in runs", whole, runs)
	}
	s := o.engines[0].Stats().Outlets
	if len(s) != 1 || s[0].Now != port.OutletRuns || s[0].Local != outer("192.0.2.1") {
		t.Errorf("%+v", s)
	}
}

// TestOutletWithoutRuns: a port that sends no runs, or has lost them, does not say that superpackets leave in
// runs.
func TestOutletWithoutRuns(t *testing.T) {
	o, _ := resting(t, path{raw: true, off: port.OffloadSet(0).With(port.OffloadGSO)})
	for set, want := range map[port.Outlet]port.Outlet{port.OutletRuns: port.OutletCut,
		port.OutletWhole: port.OutletWhole} {
		o.raws[0].SetOutlet(port.OutletChoice{Outlet: set})
		if s := o.engines[0].Stats().Outlets; len(s) != 1 || s[0].Now != want || s[0].Chosen.Outlet != set {
			t.Errorf("outlet %v: %+v, want %v", set, s, want)
		}
	}
}
