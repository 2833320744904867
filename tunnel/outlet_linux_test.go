package tunnel_test

import (
	"testing"

	"weft/encap"
	"weft/tunnel"
)

// TestOutlets counts what leaves whole and what in runs: what was set, and in a trial both. Every packet arrives.
func TestOutlets(t *testing.T) {
	o, run := resting(t, path{raw: true})
	run()
	o.warmUp(t)
	const segments, size, n = 46, 1380, 24
	carry := func(out tunnel.Outlets) (whole, runs uint64) {
		o.raws[0].SetOutlets(out)
		before := [2]uint64{o.used(0, tunnel.OffloadTunnel).Segments, o.used(0, tunnel.OffloadGSO).Segments}
		for range n {
			arrived := o.engines[1].Stats().Ingress.Delivered
			o.injectSuper(t, encap.ProtoTCP, false, segments, size)
			o.arrive(t, arrived+segments)
		}
		return (o.used(0, tunnel.OffloadTunnel).Segments - before[0]) / segments, o.used(0, tunnel.OffloadGSO).Segments - before[1]
	}
	if whole, runs := carry(tunnel.Outlets{First: tunnel.OutletWhole}); whole != n || runs != 0 {
		t.Errorf("whole: %d left whole, and %d packets in runs", whole, runs)
	}
	if whole, runs := carry(tunnel.Outlets{First: tunnel.OutletRuns}); whole != 0 || runs != n*segments {
		t.Errorf("runs: %d left whole, and %d packets in runs", whole, runs)
	}
	if whole, runs := carry(tunnel.Outlets{First: tunnel.OutletRuns, Try: true}); whole != n/2 || runs != n/2*segments {
		t.Errorf("trial: %d left whole, and %d packets in runs", whole, runs)
	}
	s := o.engines[0].Stats().Outlets
	if len(s) != 1 || s[0].Trials != 1 || s[0].Whole == 0 || s[0].Runs == 0 || s[0].Local != outer("192.0.2.1") {
		t.Errorf("after one trial: %+v", s)
	}
}
