package ops

import (
	"net/netip"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// Each pod has series of its own where they are asked for, under a label that is bounded and no other's.
func TestPodsHaveSeries(t *testing.T) {
	long := strings.Repeat("x", maxPodLabel+1)
	pod := func(name, id, iface string, sent uint64) podport.Pod {
		return podport.Pod{Request: podport.Request{Key: podport.Key{ID: id, Interface: iface}, Name: name},
			Traffic: podport.Traffic{SentPackets: sent}}
	}
	web := pod("web", "1a", "eth0", 11)
	web.By, web.State = "weft-cni", podport.Attached
	web.Addresses = []netip.Addr{netip.MustParseAddr("10.42.1.7"), netip.MustParseAddr("fd00:1::7")}
	web.SentBytes, web.ReceivedPackets, web.ReceivedBytes = 12, 13, 14
	web.Drops = []podport.Drop{{Reason: "ttl", Packets: 8}, {Reason: "busy", Packets: 7}}
	s := &control.Snapshot{Pods: &control.PodCounts{Attached: 5}, EachPod: []podport.Pod{
		web,
		pod("web", "1a", "net1", 21),
		pod("db", "2b", "eth0", 31),
		pod("db", "3c", "eth0", 41),
		pod("db 3c", "4d", "eth0", 51), // a name that looks like the one above
		pod(long, "5e", "eth0", 61),
		pod("", "6f", "eth0", 71),
	}}
	text := scrape(t, s)
	for _, want := range []string{
		`weft_pod_interface_info{addresses="10.42.1.7 fd00:1::7",by="weft-cni",id="1a",interface="eth0",pod="web"} 1`,
		`weft_pod_interface_attached{interface="eth0",pod="web"} 1`,
		`weft_pod_interface_attached{interface="net1",pod="web"} 0`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="web"} 11`,
		`weft_pod_interface_transmit_bytes_total{interface="eth0",pod="web"} 12`,
		`weft_pod_interface_receive_packets_total{interface="eth0",pod="web"} 13`,
		`weft_pod_interface_receive_bytes_total{interface="eth0",pod="web"} 14`,
		`weft_pod_interface_refused_packets_total{interface="eth0",pod="web"} 15`,
		`weft_pod_interface_transmit_packets_total{interface="net1",pod="web"} 21`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="db 2b"} 31`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="db 3c"} 41`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="5e"} 61`,
		`weft_pod_interface_transmit_packets_total{interface="eth0",pod="6f"} 71`,
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
	s.EachPod = nil
	if text := scrape(t, s); strings.Contains(text, `pod="`) || !strings.Contains(text, "weft_pods{") {
		t.Error("a page without series for each pod has some, or lacks the others")
	}
}
