package routing

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/test/netns"
)

// TestBackendKeepsTheHostsRules: the rules come with the first set, follow the type's guard, and are made
// again. Where it is the data plane that receives, it tells peers from strangers itself.
func TestBackendKeepsTheHostsRules(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	for _, c := range []struct {
		backend   string
		strangers bool
	}{
		{`{"Type":"vxlan"}`, true},
		{`{"Type":"vxlan","Userspace":"always"}`, false},
	} {
		network, err := Parse(fmt.Appendf(nil, `{"Network":"10.5.0.0/16","EnableNFTables":true,"Backend":%s}`,
			c.backend))
		if err != nil {
			t.Fatal(err)
		}
		o := newBackendConfig(t, k, network)
		o.Rules = &hostrules.Config{Network: network.NetworkConfig, Masquerade: true, Resync: time.Hour,
			RouteProtocol: RouteProtocol, Logger: slog.New(slog.DiscardHandler)}
		b, err := NewNode(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		set := lease.Set{Config: network.NetworkConfig,
			Own: lease.Record{Subnets: lease.Subnets{V4: pfx("10.5.1.0/24")}}, Peers: []lease.Record{vxlanPeer(2)}}
		there := func(what string) {
			t.Helper()
			if err := b.Apply(t.Context(), set); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			rules := netns.Command(t, "nft", "list", "ruleset")
			if st := b.Status().Rules; !st.InPlace || st.Firewall != "nftables" ||
				!strings.Contains(rules, "masquerade") || !strings.Contains(rules, "8472") {
				t.Errorf("%s: status %+v\n%s", what, st, rules)
			}
			if got := strings.Contains(rules, "from"); got != c.strangers {
				t.Errorf("%s, %s: strangers are dropped: %v\n%s", c.backend, what, got, rules)
			}
		}
		there("the first set")
		netns.Command(t, "nft", "flush", "ruleset")
		there("somebody flushed the rules")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
