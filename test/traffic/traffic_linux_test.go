package traffic_test

import (
	"net/netip"
	"os/exec"
	"testing"

	"weft/test/lab/probe"
	"weft/test/netns"
	"weft/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A flow loses nothing by itself, and counts what a firewall that drops every tenth packet takes from it.
func TestCounts(t *testing.T) {
	netns.TUN(t)
	ns := netns.New(t, "traffic")
	lo := probe.Endpoint{Name: "lo", NS: ns, Addr: netip.MustParseAddr("127.0.0.1")}
	f := traffic.Start(t, lo, lo, 1000)
	f.Passes(100)
	f.Lossless()

	f = traffic.Start(t, lo, lo, 1000)
	const drop = "table ip hole { chain c { type filter hook input priority 0; numgen inc mod 10 < 1 drop; }; }"
	if err := ns.Run(exec.Command("nft", drop)); err != nil {
		t.Fatal(err)
	}
	f.Passes(180)
	r := f.Stop()
	if r.Lost < 19 || r.Sent < r.Lost+190 || r.Duplicated != 0 || r.Reordered != 0 || r.LongestGap <= 0 {
		t.Errorf("%+v", r)
	}
}
