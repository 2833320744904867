package verdict

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

func TestReasons(t *testing.T) {
	now := time.Unix(100000, 0)
	good := control.Snapshot{
		At: now, Compared: true, NeedsRules: true,
		Lease:   lease.Status{State: lease.Held, StoreSeen: now},
		Backend: routing.Status{InPlace: true},
	}
	assigned := func(s *control.Snapshot) { // by the cluster, and known by the cache
		s.Source.Assigns, s.Lease = true, lease.Status{State: lease.Unconfirmed, StoreErr: errors.New("refused"),
			Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.244.1.0/24")}}}
	}
	for _, tt := range []struct {
		name   string
		change func(*control.Snapshot)
		want   []control.Code
	}{
		{"ready", func(*control.Snapshot) {}, nil},
		{"waiting", func(s *control.Snapshot) { *s = control.Snapshot{Compared: true, Waiting: "config: none"} },
			[]control.Code{control.Waiting}},
		{"lease", func(s *control.Snapshot) { s.Lease.State, s.Lease.Err = lease.Lost, errors.New("b has it") },
			[]control.Code{control.LeaseNotHeld}},
		{"store never seen", func(s *control.Snapshot) { s.Lease.StoreSeen = time.Time{} },
			[]control.Code{control.StoreUnheard}},
		{"store silent within the grace", func(s *control.Snapshot) {
			s.Lease.StoreErr, s.Lease.StoreSeen = errors.New("refused"), now.Add(-storeGrace)
		}, nil},
		{"store silent", func(s *control.Snapshot) {
			s.Lease.StoreErr, s.Lease.StoreSeen = errors.New("refused"), now.Add(-time.Minute)
		}, []control.Code{control.StoreSilent}},
		{"store silent behind the overlay", func(s *control.Snapshot) {
			s.StoreCut, s.Lease.StoreErr, s.Lease.StoreSeen = "Network contains it", errors.New("refused"),
				now.Add(-time.Minute)
		}, []control.Code{control.StoreSilent}},
		{"store behind the overlay that answers yet", func(s *control.Snapshot) {
			s.StoreCut = "Network contains it"
		}, nil},
		{"a store that refuses, at a start", func(s *control.Snapshot) {
			s.Lease.State, s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = lease.Unconfirmed,
				errors.New("forbidden: list nodes"), true, now.Add(-time.Second)
		}, []control.Code{control.StoreRefuses, control.LeaseNotHeld}},
		{"a store that refuses within the grace", func(s *control.Snapshot) {
			s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = errors.New("forbidden"), true,
				now.Add(-storeGrace)
		}, nil},
		{"a store that goes on refusing, and answers all the time", func(s *control.Snapshot) {
			s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = errors.New("forbidden"), true,
				now.Add(-time.Minute)
		}, []control.Code{control.StoreRefuses}},
		{"a store that answers questions and no more", func(s *control.Snapshot) {
			s.Lease.StoreErr, s.Lease.StoreSince = errors.New("internal error"), now.Add(-time.Minute)
		}, []control.Code{control.StoreFailing}},
		{"a quiet store that answers", func(s *control.Snapshot) { s.Lease.StoreSeen = now.Add(-time.Hour) }, nil},
		{"routes", func(s *control.Snapshot) { s.Backend = routing.Status{LastError: "x"} },
			[]control.Code{control.RoutesFailing}},
		{"routes at first", func(s *control.Snapshot) { s.Backend = routing.Status{} },
			[]control.Code{control.RoutesPending}},
		{"underlay", func(s *control.Snapshot) { s.Backend.UnderlayLost = "eth0 is down" },
			[]control.Code{control.UnderlayLost}},
		{"rules", func(s *control.Snapshot) { s.Backend.Rules.LastError = "iptables is missing" },
			[]control.Code{control.RulesFailing}},
		{"a store with a name", func(s *control.Snapshot) {
			s.Source.Name, s.Lease.StoreSeen = "API server", time.Time{}
		}, []control.Code{control.StoreUnheard}},
		{"a start without the API server", assigned, nil},
		{"a start without the API server, and without a subnet", func(s *control.Snapshot) {
			assigned(s)
			s.Lease.Own, s.Lease.State = lease.Record{}, lease.Acquiring
		}, []control.Code{control.StoreUnheard, control.LeaseNotHeld}},
		{"a start before the API server was asked", func(s *control.Snapshot) {
			assigned(s)
			s.Lease.StoreErr = nil
		}, []control.Code{control.StoreUnheard, control.LeaseNotHeld}},
		{"an API server that is away", func(s *control.Snapshot) {
			assigned(s)
			s.Lease.State, s.Lease.StoreSeen = lease.Held, now.Add(-time.Hour)
		}, nil},
		{"an API server that refuses us, at a start", func(s *control.Snapshot) {
			assigned(s)
			s.Lease.StoreRefuses = true
		}, []control.Code{control.StoreRefuses, control.LeaseNotHeld}},
		{"an API server behind the overlay", func(s *control.Snapshot) {
			assigned(s)
			s.StoreCut = "Network contains it"
		}, []control.Code{control.StoreUnheard, control.LeaseNotHeld}},
		{"annotations that cannot be written", func(s *control.Snapshot) {
			assigned(s)
			s.Lease.StoreErr, s.Lease.StoreSeen = nil, now
		}, []control.Code{control.LeaseNotHeld}},
		{"all", func(s *control.Snapshot) { *s = control.Snapshot{Compared: true, SubnetFile: "y"} },
			[]control.Code{control.StoreUnheard, control.LeaseNotHeld, control.RoutesPending,
				control.SubnetFileFails}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.change(&s)
			if got := control.Codes(Reasons(&s)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Packets flow although the store does not answer.
func TestBrokenIsAboutPacketsOnly(t *testing.T) {
	s := &control.Snapshot{
		Compared: true, NeedsRules: true, StoreCut: "Network contains it",
		Backend: routing.Status{InPlace: true}, Lease: lease.Status{State: lease.Unconfirmed,
			StoreErr: errors.New("refused")},
	}
	if got := Broken(s); len(got) > 0 || len(Reasons(s)) != 2 {
		t.Errorf("broken %q, reasons %q", got, Reasons(s))
	}
	s.Backend.UnderlayLost, s.SubnetFile, s.Backend.Rules.LastError = "eth0 is down", "x", "y"
	want := []control.Code{control.UnderlayLost, control.SubnetFileFails, control.RulesFailing}
	if got := control.Codes(Broken(s)); !slices.Equal(got, want) {
		t.Errorf("broken %q", got)
	}
	if s.NeedsRules = false; len(Broken(s)) != 2 {
		t.Errorf("rules that are not needed: %q", Broken(s))
	}
}

// A node has started once it is ready, or by its last state while the store says nothing.
func TestStarted(t *testing.T) {
	good := control.Snapshot{Backend: routing.Status{InPlace: true}}
	heard, pending := good, good
	heard.Lease.StoreSeen = time.Unix(1, 0)
	pending.Backend.InPlace = false
	silent := []control.Verdict{control.StoreUnheard.Say("etcd", "no answer")}
	for name, tt := range map[string]struct {
		s       control.Snapshot
		reasons []control.Verdict
		after   time.Duration
		want    bool
	}{
		"ready":              {heard, nil, 0, true},
		"not yet":            {good, silent, storeGrace, false},
		"a silent store":     {good, silent, storeGrace + 1, true},
		"a store that spoke": {heard, silent, time.Hour, false},
		"without routes":     {pending, silent, time.Hour, false},
	} {
		if got := Started(&tt.s, tt.reasons, tt.after); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
