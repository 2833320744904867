package test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/promtool"
)

// TestABrokenLabRaisesAlerts scrapes the nodes of a lab, healthy and broken, and has Prometheus' own tool evaluate the shipped
// rules over what they said: alerts for what was broken, each of them, and no other; for a healthy lab none.
func TestABrokenLabRaisesAlerts(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 3, PodsPerNode: 1})
	third := l.Node(3)
	pods := []*lab.Pod{l.Node(1).Pods[0], l.Node(2).Pods[0], third.Pods[0]}
	reach(t, await.Patience, pods[0], pods[1], 4)
	reach(t, await.Patience, pods[0], pods[2], 4)
	scrape := func(series map[string]string, minutes int) {
		for _, n := range l.Nodes() {
			text, err := n.Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			promtool.Scraped(series, n.Name, text, minutes)
		}
	}
	healthy := map[string]string{}
	scrape(healthy, 35)

	put(t, l.Store, prefix+"/subnets/10.42.201.0-24", `{"PublicIP":`, 0)
	put(t, l.Store, prefix+"/config", `{"Network":"10.42.0.0/16","Backend":{"Type":"udq"}}`, 0)
	for _, n := range l.Nodes() {
		shows(t, n, "\nweft_config_fault 1\n", `weft_records_rejected{reason="bad_value"} 1`)
	}
	sh(t, third.Host, "ip link set eth0 down")
	shows(t, third, "\nweft_underlay_lost 1\n", "\nweft_store_up 0\n", "\nweft_no_peer_answers 1\n")
	for _, n := range []*lab.Node{l.Node(1), l.Node(2)} {
		shows(t, n, "\nweft_peers_silent 1\n", `weft_peer_answers{peer="node3"} 0`)
	}
	broken := map[string]string{}
	scrape(broken, 25)

	// One Prometheus that saw the healthy lab for a while, and then the broken one.
	both := map[string]string{}
	scraped(both, healthy, broken)
	start := time.Now()
	promtool.Check(t, "../cmd/weftd/deploy/chart/weft/monitoring/rules.yaml", []promtool.Case{
		{Name: "healthy", Series: healthy, At: 34 * time.Minute},
		{Name: "just broken", Series: both, At: 35 * time.Minute},
		{Name: "broken", Series: both, At: 59 * time.Minute,
			Want: []string{"WeftConfigFault", "WeftPeerSilent", "WeftRecordsRejected", "WeftStoreUnreachable", "WeftUnderlayLost"}},
	})
	t.Logf("promtool took %s", time.Since(start).Round(time.Millisecond))
}

// scraped puts the values of first and then those of second into series, with gaps where one has none.
func scraped(series, first, second map[string]string) {
	for name := range maps.Keys(first) {
		series[name] = first[name] + second[name]
	}
	for name, values := range second {
		if first[name] == "" {
			series[name] = "_x34" + values
		}
	}
}

// shows waits until the node's /metrics have all of the texts.
func shows(t *testing.T, n *lab.Node, texts ...string) {
	t.Helper()
	await.Within(t, await.Timers, fmt.Sprintf("%s shows %q", n.Name, texts), func() error {
		have, err := n.Metrics(t.Context())
		for _, text := range texts {
			if err == nil && !strings.Contains(have, text) {
				err = fmt.Errorf("no %q", text)
			}
		}
		return err
	})
}
