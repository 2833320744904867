package doctor

import (
	"maps"
	"testing"

	"weft/cmd/internal/control"
)

// TestMalformedSince counts what rises: not what a peer had before, and not what was counted of one that is
// gone or anew.
func TestMalformedSince(t *testing.T) {
	peers := func(counts map[string]uint64) (ps control.Peers) {
		for name, n := range counts {
			ps.Peers = append(ps.Peers, control.Peer{Name: name,
				Drops: []control.Drop{{Reason: "malformed", Packets: n}, {Reason: "stranger", Packets: 2 * n}}})
		}
		return ps
	}
	got := malformedSince(peers(map[string]uint64{"a": 5, "b": 5, "c": 5, "gone": 1}),
		peers(map[string]uint64{"a": 5, "b": 9, "c": 1, "new": 2}))
	if want := map[string]uint64{"b": 4, "new": 2}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
