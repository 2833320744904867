package ops

import (
	"net/netip"
	"strings"
	"testing"
)

// Each pod has series of its own where they are asked for, under a label that is bounded and no other's.
func TestPodsHaveSeries(t *testing.T) {
	long := strings.Repeat("x", maxPodLabel+1)
	s := Snapshot{Pods: Pods{Attached: 5}, EachPod: []PodInterface{
		{Name: "web", ID: "1a", Interface: "eth0", By: "weft-cni", Addresses: []netip.Addr{netip.MustParseAddr("10.42.1.7"), netip.MustParseAddr("fd00:1::7")}, Attached: true, SentPackets: 11, SentBytes: 12, ReceivedPackets: 13, ReceivedBytes: 14, Refused: 15},
		{Name: "web", ID: "1a", Interface: "net1", SentPackets: 21},
		{Name: "db", ID: "2b", Interface: "eth0", SentPackets: 31},
		{Name: "db", ID: "3c", Interface: "eth0", SentPackets: 41},
		{Name: "db 3c", ID: "4d", Interface: "eth0", SentPackets: 51}, // a name that looks like the one above
		{Name: long, ID: "5e", Interface: "eth0", SentPackets: 61},
		{ID: "6f", Interface: "eth0", SentPackets: 71},
	}}
	text := scrape(t, s)
	for _, want := range []string{
		`weft_pod_interface_info{addresses="10.42.1.7 fd00:1::7",by="weft-cni",id="1a",interface="eth0",pod="web"} 1`,
		`weft_pod_interface_attached{interface="eth0",pod="web"} 1`, `weft_pod_interface_attached{interface="net1",pod="web"} 0`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="web"} 11`, `weft_pod_interface_transmit_bytes_total{interface="eth0",pod="web"} 12`,
		`weft_pod_interface_receive_packets_total{interface="eth0",pod="web"} 13`, `weft_pod_interface_receive_bytes_total{interface="eth0",pod="web"} 14`,
		`weft_pod_interface_refused_packets_total{interface="eth0",pod="web"} 15`,
		`weft_pod_interface_transmit_packets_total{interface="net1",pod="web"} 21`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="db 2b"} 31`, `weft_pod_interface_transmit_packets_total{interface="eth0",pod="db 3c"} 41`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="5e"} 61`, `weft_pod_interface_transmit_packets_total{interface="eth0",pod="6f"} 71`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "weft_pod_interface_transmit_packets_total{") {
			name := line[:strings.LastIndexByte(line, ' ')]
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
	if strings.Contains(text, long) {
		t.Error("a name of any length is a label")
	}
	s.EachPod, s.each = nil, nil
	if text := scrape(t, s); strings.Contains(text, `pod="`) || !strings.Contains(text, "weft_pods{") {
		t.Error("a page without series for each pod has some, or lacks the others")
	}
}
