package verdict

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing/probe"
	"weft/tunnel"
	"weft/tunnel/port"
)

func TestNotes(t *testing.T) {
	now := time.Unix(100000, 0)
	assigned := func(s *control.Snapshot) { // by the cluster, and known by the cache
		s.Source.Assigns = true
		s.Lease = lease.Status{
			State: lease.Unconfirmed, StoreErr: errors.New("refused"), Notes: []string{"no podCIDR of IPv6"},
			Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.244.1.0/24")}},
		}
	}
	plane := func(s *control.Snapshot, p control.Plane) { s.Plane = &p }
	for _, tt := range []struct {
		name   string
		change func(*control.Snapshot)
		want   []control.Code
	}{
		{"nothing", func(*control.Snapshot) {}, nil},
		{"missing parts, while it waits", func(s *control.Snapshot) {
			s.Waiting, s.Missing, s.Former = "config: none", []string{"health server: taken", "x: y"}, "docker0"
		}, []control.Code{control.WithoutPart, control.WithoutPart}},
		{"nobody keeps pods", func(s *control.Snapshot) { s.Custody = &control.Custody{Items: 2, Fault: "x"} },
			[]control.Code{control.RestartLosesPods}},
		{"nobody keeps ports", func(s *control.Snapshot) { s.Custody = &control.Custody{Fault: "x"} },
			[]control.Code{control.RestartLosesPorts}},
		{"pods are kept", func(s *control.Snapshot) { s.Custody = &control.Custody{Items: 2} }, nil},
		{"certificate", func(s *control.Snapshot) { s.Certificates = []string{"ends"} },
			[]control.Code{control.CertificateFails}},
		{"an assigned subnet outlasts a silence", assigned,
			[]control.Code{control.LeaseNote, control.StoreUnheard}},
		{"but not a refusal", func(s *control.Snapshot) { assigned(s); s.Lease.StoreRefuses = true },
			[]control.Code{control.LeaseNote}},
		{"an allocated one does not", func(s *control.Snapshot) { assigned(s); s.Source.Assigns = false }, nil},
		{"cache", func(s *control.Snapshot) { s.Lease.CacheErr = errors.New("no space") },
			[]control.Code{control.CacheNotSaved}},
		{"last good", func(s *control.Snapshot) {
			s.Config = control.Config{LastGood: true, Faults: []string{"x"}}
		}, []control.Code{control.ConfigLastGood}},
		{"former subnet", func(s *control.Snapshot) { s.Former = "docker0" }, []control.Code{control.FormerSubnet}},
		{"probes", func(s *control.Snapshot) { s.ProbeFaults = []string{"x"} },
			[]control.Code{control.ProbesFailing}},
		{"no peer answers", func(s *control.Snapshot) {
			s.Alone, s.Probes = true, []probe.State{{Way: probe.Way{Peer: "a"}, Answers: probe.No},
				{Way: probe.Way{Peer: "b"}, Answers: probe.No}}
		}, []control.Code{control.NoPeerAnswers}},
		{"one may answer", func(s *control.Snapshot) {
			s.Alone, s.Probes = true, []probe.State{{Way: probe.Way{Peer: "a"}, Answers: probe.No},
				{Way: probe.Way{Peer: "b"}}}
		}, nil},
		{"forgers, while they are recent", func(s *control.Snapshot) {
			plane(s, control.Plane{Forgers: []tunnel.Stranger{{Packets: 9, LastRx: now.Add(-time.Minute)},
				{Packets: 1, LastRx: now.Add(-time.Hour)}}})
		}, []control.Code{control.ForgedSource}},
		{"a broken offload", func(s *control.Snapshot) {
			plane(s, control.Plane{Stats: tunnel.Stats{Offloads: []port.OffloadStats{
				{State: port.OffloadOn}, {State: port.OffloadLost}, {State: port.OffloadBroken},
			}}})
		}, []control.Code{control.OffloadBreaksLinks}},
	} {
		s := &control.Snapshot{At: now}
		tt.change(s)
		if got := control.Codes(Notes(s)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// From four fifths on the operator is told, before a node finds no subnet.
func TestTheRangesEndIsTold(t *testing.T) {
	c, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.42.0.0/24","SubnetLen":28}`))
	if err != nil {
		t.Fatal(err)
	}
	all := int(c.Use(nil)[0].All)
	for n := range all + 1 {
		s := &control.Snapshot{Set: lease.Set{Config: c}}
		for i := range n {
			own := lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(16 * (i + 1))}), 28)}
			if i == 0 {
				s.Set.Own.Subnets = own
				continue
			}
			s.Set.Peers = append(s.Set.Peers, lease.Record{Subnets: own})
		}
		if got := RangeUse(s); (100*n/all >= 80) != (got.Code == control.NetworkNearlyFull) {
			t.Errorf("%d of %d: %q", n, all, got)
		}
		s.Source.Assigns = true
		if got := RangeUse(s); got.Code != "" {
			t.Errorf("the cluster gives them out: %q", got)
		}
	}
}
