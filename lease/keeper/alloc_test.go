package keeper_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

func rng() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func self() lease.Self {
	return lease.Self{Node: "me", PublicIP: netip.MustParseAddr("192.0.2.1")}
}

func TestPlan(t *testing.T) {
	mine := leasetest.Record(t, "10.244.5.0/24", "me", "192.0.2.1", 3)
	moved := leasetest.Record(t, "10.244.5.0/24", "me", "192.0.2.77", 3)
	other := leasetest.Record(t, "10.244.6.0/24", "other", "192.0.2.2", 4)
	rival := leasetest.Record(t, "10.244.7.0/24", "rival", "192.0.2.1", 5)
	flannel := leasetest.Record(t, "10.244.8.0/24", "", "192.0.2.1", 6)
	long := leasetest.Record(t, "10.244.9.0/25", "me", "192.0.2.1", 7)
	tests := []struct {
		name     string
		records  []lease.Record
		previous string
		want     string // kind and subnet, or the error
		release  int
		reason   string
	}{
		{name: "own", records: []lease.Record{other, mine}, previous: "10.244.99.0/24", want: "own 10.244.5.0/24"},
		{name: "own at another address", records: []lease.Record{moved}, want: "own 10.244.5.0/24"},
		{name: "own before adopting", records: []lease.Record{mine, flannel}, want: "own 10.244.5.0/24"},
		{name: "adopt", records: []lease.Record{other, flannel}, want: "adopt 10.244.8.0/24"},
		{name: "rival", records: []lease.Record{rival}, want: "rival"},
		{name: "rival, and we only come back", records: []lease.Record{mine, rival}, want: "own 10.244.5.0/24"},
		{name: "rival, and we have moved here", records: []lease.Record{moved, rival}, want: "rival"},
		{name: "previous", previous: "10.244.99.0/24", want: "previous 10.244.99.0/24"},
		{name: "previous taken", records: []lease.Record{other}, previous: "10.244.6.0/24", want: "free",
			reason: "10.244.6.0/24"},
		{name: "previous outside", previous: "10.99.6.0/24", want: "free", reason: "10.244.255.0"},
		{name: "previous before SubnetMin", previous: "10.244.0.0/24", want: "free", reason: "10.244.1.0"},
		{name: "previous is the underlay", previous: "10.244.200.0/24", want: "free", reason: "10.244.200.1"},
		{name: "own of another length", records: []lease.Record{long}, want: "free", release: 1, reason: "/25"},
		{name: "two of our own",
			records:  []lease.Record{mine, leasetest.Record(t, "10.244.15.0/24", "me", "192.0.2.1", 9)},
			previous: "10.244.15.0/24", want: "own 10.244.15.0/24", release: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := keeper.Request{
				Config: leasetest.Config(t, `{"Network":"10.244.0.0/16"}`), Self: self(), Records: tt.records,
				Rand:  rng(),
				Avoid: []netip.Addr{netip.MustParseAddr("10.244.200.1")},
			}
			if tt.previous != "" {
				q.Previous = leasetest.Subnets(t, tt.previous)
			}
			c, err := keeper.Plan(q)
			got := c.Kind.String() + " " + c.Subnets.String()
			if errors.As(err, new(*lease.RivalError)) {
				got = "rival"
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(c.Release) != tt.release || !strings.Contains(strings.Join(c.Reasons, "\n"), tt.reason) {
				t.Errorf("release %v, reasons %q", c.Release, c.Reasons)
			}
		})
	}
}

// Two nodes that started together have one IPv6 subnet, with different IPv4 ones, and the second ended before
// it had looked. When it comes back it keeps what nobody else has.
func TestPlanYieldsToTheFirst(t *testing.T) {
	config := leasetest.Config(t, `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`)
	q := keeper.Request{Config: config, Self: self(), Rand: rng()}
	mine := leasetest.Record(t, "10.244.5.0/24,fd00:0:0:6::/64", "me", "192.0.2.1", 4)
	first := leasetest.Record(t, "10.244.7.0/24,fd00:0:0:6::/64", "other", "192.0.2.2", 3)
	q.Records = []lease.Record{mine, first}
	c, err := keeper.Plan(q)
	if err != nil || c.Kind != keeper.ClaimPart || c.V4 != mine.V4 || c.V6.Overlaps(first.V6) ||
		!c.V6.IsValid() || c.Current.Key() != mine.Key() {
		t.Errorf("%s %s in place of %s, %v", c.Kind, c.Subnets, c.Current.Key(), err)
	}
	q.Records[1].Revision = 5
	if c, err := keeper.Plan(q); err != nil || c.Kind != keeper.ClaimOwn || c.Subnets != mine.Subnets {
		t.Errorf("the second came later: %s %s, %v", c.Kind, c.Subnets, err)
	}
}

// TestPlansOfOneMoment: nodes that draw from one state of the store in dual stack draw the same record, which
// the store gives to one of them, or nothing in common.
func TestPlansOfOneMoment(t *testing.T) {
	config := leasetest.Config(t, `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`)
	q := keeper.Request{Config: config, Self: self(), Rand: rng()}
	q.Records = []lease.Record{leasetest.Record(t, "10.244.5.0/24,fd00:0:0:60::/64", "b", "192.0.2.9", 1)}
	var drawn []lease.Subnets
	for range 300 {
		c, err := keeper.Plan(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range drawn {
			if c.Overlaps(other) && c.Subnets != other {
				t.Fatalf("%s and %s", c.Subnets, other)
			}
		}
		drawn = append(drawn, c.Subnets)
	}
}

func TestPlanDrawsOnlyWhatIsFree(t *testing.T) {
	q := keeper.Request{
		Config: leasetest.Config(t, `{"Network":"10.0.0.0/20","EnableIPv6":true,"IPv6Network":"fd00::/60"}`),
		Self:   self(),
		Rand:   rng(),
		Bad:    []lease.Rejected{{Key: "10.0.1.0-24"}, {Key: "garbage"}},
		Avoid: []netip.Addr{
			netip.MustParseAddr("10.0.2.9"), netip.MustParseAddr("fd00:0:0:1::1"),
		},
	}
	q.Records = []lease.Record{leasetest.Record(t, "10.0.4.0/22", "big", "192.0.2.9", 1)}
	// Of 15 subnets one is garbage, one the underlay's, four one big record's: nine.
	for i := range 9 {
		c, err := keeper.Plan(q)
		if err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
		for _, r := range q.Records {
			if r.Overlaps(c.Subnets) || c.Contains(q.Avoid[0]) || c.Contains(q.Avoid[1]) ||
				!q.Config.Network.Overlaps(c.V4) || !q.Config.IPv6Network.Overlaps(c.V6) {
				t.Fatalf("%s overlaps %s, or is outside", c.Subnets, r.Subnets)
			}
		}
		q.Records = append(q.Records, lease.Record{Subnets: c.Subnets,
			Attrs: lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.2")}})
	}
	_, err := keeper.Plan(q)
	if !errors.Is(err, lease.ErrOutOfSubnets) || !strings.Contains(err.Error(), "/24") {
		t.Errorf("got %v, want out of subnets, and that 15 exist", err)
	}
}

func TestPlanIsAmongTheFirstHundred(t *testing.T) {
	q := keeper.Request{Config: leasetest.Config(t,
		`{"Network":"10.0.0.0/8","EnableIPv6":true,"IPv6Network":"fd00::/16"}`),
		Self: self(), Rand: rng()}
	seen := map[netip.Prefix]bool{}
	for range 2000 {
		c, err := keeper.Plan(q)
		if err != nil {
			t.Fatal(err)
		}
		if b := c.V4.Addr().As4(); b[1] != 0 || b[2] < 1 || b[2] > 100 {
			t.Fatalf("%s is not among the first hundred", c.V4)
		}
		seen[c.V4] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d different subnets in 2000 draws, want 100", len(seen))
	}
}

func TestPlanIPv6OnlyIsRefusedBesideFlannel(t *testing.T) {
	q := keeper.Request{Config: leasetest.Config(t,
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48"}`),
		Rand: rng(),
		Self: lease.Self{Node: "me", PublicIPv6: netip.MustParseAddr("2001:db8::1")}}
	q.Records = []lease.Record{leasetest.Record(t, "fd00:0:0:5::/64", "other", "2001:db8::2", 1)}
	if _, err := keeper.Plan(q); err != nil {
		t.Fatal(err)
	}
	q.Records = append(q.Records, leasetest.Record(t, "10.1.1.0/24", "", "192.0.2.9", 2))
	var only *lease.IPv6OnlyError
	if _, err := keeper.Plan(q); !errors.As(err, &only) || only.Keys[0] != "10.1.1.0-24" {
		t.Errorf("got %v", err)
	}
}
