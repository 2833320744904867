package verdict

import (
	"fmt"
	"net/netip"
	"testing"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

func TestNoUsablePeerIsSaidWithItsReason(t *testing.T) {
	peer := func(n int, backend string) lease.Record {
		return lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix(fmt.Sprintf("10.42.%d.0/24", n))},
			Attrs: lease.Attrs{BackendType: backend}}
	}
	config := lease.NetworkConfig{EnableIPv4: true, Network: netip.MustParsePrefix("10.42.0.0/16")}
	inPlace := routing.Status{InPlace: true, Path: "raw"}
	skipped := inPlace
	skipped.Skipped = []routing.Skipped{{Peer: "b", Reason: "it has no MAC"},
		{Peer: "c", Reason: "it has no MAC"}}
	used := skipped
	used.Peers = 1
	for _, tt := range []struct {
		name    string
		set     lease.Set
		backend routing.Status
		ours    string
		kinds   string
	}{
		{"alone", lease.Set{Config: config}, inPlace, "", "[]"},
		{"one of two is used", lease.Set{Config: config, Peers: []lease.Record{peer(1, "vxlan"), peer(2, "")}},
			used, "", "[]"},
		{"another type", lease.Set{Config: config, Peers: []lease.Record{peer(1, "vxlan"), peer(2, "vxlan")}},
			skipped, "", "[backend_type]"},
		{"flannel's udp", lease.Set{Config: config, Peers: []lease.Record{peer(1, "")}}, skipped, "vxlan",
			"[backend_type]"},
		{"something else", lease.Set{Config: config, Peers: []lease.Record{peer(1, "vxlan"), peer(2, "vxlan")}},
			skipped, "vxlan", "[other]"},
		{"another network", lease.Set{Config: config,
			Rejected: []lease.Rejected{{Key: "k", Reason: lease.RejectOutside},
				{Key: "l", Reason: lease.RejectOutside}}}, inPlace, "", "[outside_network]"},
		{"another length", lease.Set{Config: config,
			Rejected: []lease.Rejected{{Key: "k", Reason: lease.RejectLength}}}, inPlace, "", "[wrong_length]"},
		{"garbage", lease.Set{Config: config,
			Rejected: []lease.Rejected{{Key: "k", Reason: lease.RejectValue, Detail: "empty"}}}, inPlace, "",
			"[other]"},
		{"not taken up yet", lease.Set{Config: config, Peers: []lease.Record{peer(1, "")}}, inPlace, "", "[]"},
		{"not in place yet", lease.Set{Config: config, Peers: []lease.Record{peer(1, "vxlan")}},
			routing.Status{Path: "raw"}, "", "[]"},
		{"no peers by its type", lease.Set{Config: config, Peers: []lease.Record{peer(1, "vxlan")}},
			routing.Status{InPlace: true, Path: "none"}, "", "[]"},
	} {
		note, kinds := NoPeer(&control.Snapshot{Set: tt.set, Backend: tt.backend, RecordType: tt.ours})
		if fmt.Sprint(kinds) != tt.kinds || (note.Code == control.NoUsablePeer) != (len(kinds) > 0) {
			t.Errorf("%s: got %q %v, want %s", tt.name, note, kinds, tt.kinds)
		}
	}
}
