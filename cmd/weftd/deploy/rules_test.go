package deploy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/promtool"
)

const rulesFile = "chart/weft/monitoring/rules.yaml"

// nodes returns the series of a healthy cluster of three nodes, with the changes given by name of the metric
// for node a.
func nodes(changes map[string]string) map[string]string {
	series := map[string]string{}
	add := func(instance, metric, values string) {
		name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
		series[fmt.Sprintf("%s{%s}", name, strings.Trim(fmt.Sprintf("instance=%q,job=%q,%s", instance, "weft", labels), ","))] = values
	}
	healthy := map[string]string{
		"up": "1x150", "weft_ready": "1x150", "weft_ports": "2x150", "weft_store_up": "1x150",
		"weft_lease_held":    "1x150",
		"weft_underlay_lost": "0x150", "weft_backend_in_place": "1x150", "weft_rules_in_place": "1x150",
		"weft_backend_repairs_total": "0+0x150", "weft_rules_repairs_total": "0+0x150",
		"weft_config_changed": "0x150",
		"weft_config_fault":   "0x150", "weft_config_last_good": "0x150", "weft_removals_disbelieved": "0x150",
		`weft_records_rejected{reason="bad_value"}`: "0x150", "weft_peers_skipped": "0x150",
		"weft_peers_held_back": "0x150",
		"weft_mtu_bytes":       "1450x150", `weft_build_info{version="v1",goversion="go",node="n"}`: "1x150",
		`weft_received_packets_total{direction="egress"}`:  "0+6000x150",
		`weft_received_packets_total{direction="ingress"}`: "0+6000x150",
		// a neighbour that is asked for now and then
		`weft_dropped_packets_total{direction="egress",reason="underlay"}`:      "0+1x150",
		`weft_dropped_packets_total{direction="ingress",reason="unknown_peer"}`: "0+1x150",
		`weft_dropped_packets_total{direction="ingress",reason="busy"}`:         "0+0x150",
		`weft_kernel_dropped_packets_total{where="socket"}`:                     "0+1x150",
		"weft_no_peer_answers": "0x150", "weft_peers_silent": "0x150", `weft_peer_answers{peer="z"}`: "1x150",
		`weft_peer_loss_ratio{peer="z",direction="out"}`: "0x150",
		`weft_peer_loss_ratio{peer="z",direction="in"}`:  "0.02x150",
		`weft_peer_path_mtu_bytes{peer="z"}`:             "1450x150",
	}
	for _, instance := range []string{"a", "b", "c"} {
		for metric, values := range healthy {
			add(instance, metric, values)
		}
	}
	for metric, values := range changes {
		if values == "" {
			delete(series, fmt.Sprintf("%s{instance=%q,job=%q}", metric, "a", "weft"))
			continue
		}
		add("a", metric, values)
	}
	return series
}

// TestAlerts: each alert fires when it should, after as long as it should, and no other does. A restart
// raises none.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool.Run(t, "check", "rules", rulesFile)
	cases := []promtool.Case{
		{Name: "healthy", At: 2 * time.Hour},
		{Name: "a restart of weftd", At: 33 * time.Minute,
			Series: map[string]string{"up": "1x29 0 1x100", "weft_ready": "1x29 _ 0 1x100",
				"weft_backend_repairs_total": "3x29 _ 0x100", "weft_underlay_lost": "0x150",
				"weft_backend_in_place": "1x29 _ 0 1x100"}},
		{Name: "a restart of the store", At: 34 * time.Minute,
			Series: map[string]string{"weft_store_up": "1x29 0x2 1x100"}},
		{Name: "WeftDown", At: 40 * time.Minute, Series: map[string]string{"up": "1x29 0x100", "weft_ports": ""}},
		{Name: "not yet WeftDown", At: 33 * time.Minute,
			Series: map[string]string{"up": "1x29 0x100", "weft_ports": ""}},
		{Name: "WeftDataPlaneDown", At: 33 * time.Minute, Series: map[string]string{"up": "1x29 0x100"}},
		{Name: "WeftNotReady", At: 40 * time.Minute, Series: map[string]string{"weft_ready": "1x29 0x100"}},
		{Name: "WeftUnderlayLost", At: 32 * time.Minute,
			Series: map[string]string{"weft_underlay_lost": "0x29 1x100", "weft_backend_in_place": "1x29 0x100"}},
		{Name: "WeftBackendNotInPlace", At: 40 * time.Minute,
			Series: map[string]string{"weft_backend_in_place": "1x29 0x100"}},
		{Name: "WeftRulesNotInPlace", At: 40 * time.Minute,
			Series: map[string]string{"weft_rules_in_place": "1x29 0x100"}},
		{Name: "WeftRepairsWithoutEnd", At: 2 * time.Hour,
			Series: map[string]string{"weft_rules_repairs_total": "0+1x200"}},
		{Name: "WeftLeaseNotHeld", At: 45 * time.Minute,
			Series: map[string]string{"weft_lease_held": "1x29 0x100"}},
		{Name: "WeftLastGoodConfig", At: 50 * time.Minute,
			Series: map[string]string{"weft_config_last_good": "0x29 1x100"}},
		{Name: "WeftUndeliverable", At: 45 * time.Minute,
			Series: map[string]string{
				`weft_dropped_packets_total{direction="egress",reason="underlay"}`: "0x29 0+60x100"}},
		{Name: "WeftOverloaded", At: 50 * time.Minute,
			Series: map[string]string{`weft_kernel_dropped_packets_total{where="socket"}`: "0x29 0+600x100"}},
		{Name: "WeftPacketsRefused", At: 1 * time.Hour,
			Series: map[string]string{
				`weft_dropped_packets_total{direction="ingress",reason="unknown_peer"}`: "0x9 0+900x100"}},
		{Name: "WeftPeerHeldBack", At: 45 * time.Minute,
			Series: map[string]string{"weft_peers_held_back": "0x29 1x100"}},
		{Name: "a restart of a peer", At: 32 * time.Minute,
			Series: map[string]string{`weft_peer_answers{peer="z"}`: "1x29 0 1x100",
				"weft_peers_silent": "0x29 1 0x100"}},
		{Name: "WeftNoPeerAnswers", At: 45 * time.Minute,
			Series: map[string]string{"weft_no_peer_answers": "0x29 1x100",
				`weft_peer_answers{peer="z"}`: "1x29 0x100", "weft_peers_silent": "0x29 2x100"}},
		{Name: "WeftPeerSilent", At: 45 * time.Minute,
			Series: map[string]string{`weft_peer_answers{peer="z"}`: "1x29 0x100", "weft_peers_silent": "0x29 1x100",
				`weft_peer_loss_ratio{peer="z",direction="out"}`: "0x29 1x100"}},
		{Name: "WeftPeersSilent", At: 45 * time.Minute,
			Series: map[string]string{`weft_peer_answers{peer="z"}`: "_x150", "weft_peers_silent": "0x29 1x100"}},
		{Name: "WeftPeerLossy", At: 45 * time.Minute,
			Series: map[string]string{`weft_peer_loss_ratio{peer="z",direction="in"}`: "0x29 0.3x100"}},
		{Name: "WeftPathMTULowered", At: 50 * time.Minute,
			Series: map[string]string{`weft_peer_path_mtu_bytes{peer="z"}`: "1450x29 1300x100"}},
		{Name: "WeftStoreUnreachable", At: 45 * time.Minute,
			Series: map[string]string{"weft_store_up": "1x29 0x100"}},
		{Name: "WeftNoUsablePeer", At: 45 * time.Minute,
			Series: map[string]string{`weft_no_usable_peer{reason="backend_type"}`: "_x29 1x100"}},
		{Name: "WeftConfigFault", At: 45 * time.Minute, Series: map[string]string{"weft_config_fault": "0x29 1x100",
			"weft_config_changed": "0x29 1x100"}},
		{Name: "WeftConfigNotTakenUp", At: 2 * time.Hour,
			Series: map[string]string{"weft_config_changed": "0x29 1x200"}},
		{Name: "WeftRemovalsDisbelieved", At: 45 * time.Minute,
			Series: map[string]string{"weft_removals_disbelieved": "0x29 1x100"}},
		{Name: "WeftRecordsRejected", At: 1 * time.Hour,
			Series: map[string]string{`weft_records_rejected{reason="bad_value"}`: "0x29 1x100"}},
		{Name: "WeftPeersSkipped", At: 1 * time.Hour,
			Series: map[string]string{"weft_peers_skipped": "0x29 1x100"}},
		{Name: "WeftMTUDiffers", At: 90 * time.Minute,
			Series: map[string]string{"weft_mtu_bytes": "1450x29 1400x200",
				`weft_peer_path_mtu_bytes{peer="z"}`: "1400x200"}},
	}
	tested := map[string]bool{"WeftStoreDown": true, "WeftVersionsDiffer": true}
	for i, c := range cases {
		cases[i].Series = nodes(c.Series)
		if !strings.Contains(c.Name, " ") && c.Name != "healthy" {
			cases[i].Want, tested[c.Name] = []string{c.Name}, true
		}
	}
	down := nodes(nil) // what most nodes see alike is one alert
	for _, instance := range []string{"a", "b"} {
		down[fmt.Sprintf("weft_store_up{instance=%q,job=%q}", instance, "weft")] = "1x29 0x100"
		down[fmt.Sprintf("weft_ready{instance=%q,job=%q}", instance, "weft")] = "1x29 0x100"
	}
	versions := map[string]string{`weft_build_info{instance="a",job="weft",version="v1"}`: "1x430",
		`weft_build_info{instance="b",job="weft",version="v2"}`: "1x430"}
	cases = append(cases, promtool.Case{Name: "WeftStoreDown", At: 45 * time.Minute, Series: down,
		Want: []string{"WeftStoreDown"}},
		promtool.Case{Name: "WeftVersionsDiffer", At: 7 * time.Hour, Series: versions,
			Want: []string{"WeftVersionsDiffer"}})
	promtool.Check(t, rulesFile, cases)

	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(b), -1) {
		if !tested[m[1]] {
			t.Errorf("no case raises %s", m[1])
		}
		delete(tested, m[1])
	}
	if left := slices.Collect(maps.Keys(tested)); len(left) > 0 {
		t.Errorf("there are no alerts %q", left)
	}
}

// TestAlertsSayWhatToDo: each alert has a severity, a summary, a description and a place in the documents,
// which is there.
func TestAlertsSayWhatToDo(t *testing.T) {
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(b), "- alert: ")[1:] {
		name, _, _ := strings.Cut(text, "\n")
		for _, want := range []string{"labels: {severity: ", "summary: ", "description: ", "for: "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		m := regexp.MustCompile(`runbook: (docs/[a-z]+\.md)#([a-z-]+)`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s has no runbook", name)
			continue
		}
		page, err := os.ReadFile(filepath.Join("../../..", m[1]))
		if heading := regexp.MustCompile(`(?mi)^#+ ` + strings.ReplaceAll(m[2], "-", "[ -]") + `$`); err != nil ||
			!heading.Match(page) {
			t.Errorf("%s: there is no %s#%s (%v)", name, m[1], m[2], err)
		}
	}
}
