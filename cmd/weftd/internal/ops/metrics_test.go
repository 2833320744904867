package ops

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
	"weft/tunnel/port"
)

// scrape asks for /metrics as Prometheus does.
func scrape(t *testing.T, s *control.Snapshot) string {
	t.Helper()
	w := httptest.NewRecorder()
	h := Handler(pagesOf(s))
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestValuesReachTheText(t *testing.T) {
	s := &control.Snapshot{
		At: time.Unix(500, 0), Version: "v1", NodeID: "a", Config: control.Config{Differs: true}, Compared: true,
		Lease: lease.Status{
			State: lease.Held, Own: lease.Record{Expires: time.Unix(1000, 0)}, StoreSeen: time.Unix(500, 0),
			Revision: 7,
			Rejected: []lease.Rejected{{Reason: lease.RejectValue}, {Reason: lease.RejectValue}},
		},
		Backend: routing.Status{MTU: 1472, InPlace: true, Repaired: 5, Peers: 3},
		Plane: &control.Plane{
			Strangers: make([]tunnel.Stranger, 3), Dropped: 4,
			Peers: []tunnel.PeerStats{
				{Name: "b", Addr: netip.MustParseAddr("192.0.2.1"), TxBytes: 11, LastRx: time.Unix(9, 0)},
				{Name: "b", Addr: netip.MustParseAddr("192.0.2.2"), TxBytes: 12}, // a cloned node id
				{Name: "b", Addr: netip.MustParseAddr("192.0.2.2"), TxBytes: 13},
			},
		},
	}
	s.Plane.Stats.Egress.Received = 10
	s.Plane.Stats.Ingress.Drops[port.DropTTL] = 6
	text := scrape(t, s)
	for _, want := range []string{
		`weft_build_info{goversion="go1.`, `weft_ready 1`, `weft_lease_held 1`, `weft_store_up 1`,
		`weft_lease_expiry_timestamp_seconds 1000`, `weft_store_revision 7`, `weft_config_changed 1`,
		`weft_records_rejected{reason="bad_value"} 2`, `weft_records_rejected{reason="bad_key"} 0`,
		`weft_strangers 3`,
		`weft_kernel_dropped_packets_total{where="device"} 4`, `weft_mtu_bytes 1472`,
		`weft_backend_repairs_total 5`, `weft_underlay_lost 0`,
		`weft_received_packets_total{direction="egress"} 10`,
		`weft_dropped_packets_total{direction="ingress",reason="ttl"} 6`,
		`weft_peer_transmit_bytes_total{peer="b"} 11`, `weft_peer_transmit_bytes_total{peer="b 192.0.2.2"} 12`,
		`weft_peers 3`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// Nodes of one name are told apart by their ids, in every series of theirs, and a flannel node is its subnet.
func TestPeersOfOneNameAreToldApart(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("2001:db8::3")
	v4 := func(s string) lease.Subnets { return lease.Subnets{V4: netip.MustParsePrefix(s)} }
	s := &control.Snapshot{
		Plane: &control.Plane{Peers: []tunnel.PeerStats{
			{Name: "db", Addr: a, TxBytes: 11}, {Name: "db", Addr: b, TxBytes: 12},
			{Name: "web", Addr: c, TxBytes: 13},
		}},
		Records: []lease.Record{
			nodeOf("db", "1a", lease.Attrs{PublicIP: a}, v4("10.42.1.0/24")),
			nodeOf("db", "2b", lease.Attrs{PublicIP: b}, v4("10.42.2.0/24")),
			nodeOf("web", "3c", lease.Attrs{PublicIPv6: c}, lease.Subnets{V6: netip.MustParsePrefix("fd00:3::/64")}),
			{Attrs: lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.4")}, Subnets: v4("10.42.4.0/24")},
		},
	}
	text := scrape(t, s)
	for _, want := range []string{
		`weft_peer_info{address="192.0.2.1",backend="udp",id="1a",peer="db 1a",subnets="10.42.1.0/24"} 1`,
		`weft_peer_info{address="192.0.2.2",backend="udp",id="2b",peer="db 2b",subnets="10.42.2.0/24"} 1`,
		`weft_peer_info{address="2001:db8::3",backend="udp",id="3c",peer="web",subnets="fd00:3::/64"} 1`,
		`weft_peer_info{address="192.0.2.4",backend="udp",id="",peer="10.42.4.0/24",subnets="10.42.4.0/24"} 1`,
		`weft_peer_transmit_bytes_total{peer="db 1a"} 11`, `weft_peer_transmit_bytes_total{peer="db 2b"} 12`,
		`weft_peer_transmit_bytes_total{peer="web"} 13`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	pages := pagesOf(s)
	pages.PerPeer = false
	w := newRecorder()
	Handler(pages).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); strings.Contains(text, `peer="`) || !strings.Contains(text, "weft_peers ") {
		t.Error("a page without series for each peer has some, or lacks the others")
	}
}

func TestAllReasonsArePresentBeforeAnythingHappened(t *testing.T) {
	text := scrape(t, &control.Snapshot{})
	for r := range port.NumDropReasons {
		for _, direction := range []string{"egress", "ingress"} {
			if want := `weft_dropped_packets_total{direction="` + direction + `",reason="` + r.String() +
				`"} 0`; !strings.Contains(text, want) {
				t.Errorf("%s is missing", want)
			}
		}
	}
}

// Where the kernel moves the packets its devices' counters are there, and no zero says that nothing passes.
func TestTheKernelsCountsTakeThePlaceOfOurs(t *testing.T) {
	text := scrape(t, &control.Snapshot{Backend: routing.Status{Peers: 3, Path: routing.PathKernel},
		Devices: []routing.DeviceTraffic{
			{Name: "flannel.1", Overlay: true, DeviceCounters: routing.DeviceCounters{TxPackets: 5, TxBytes: 500, RxPackets: 7,
				RxBytes: 700, TxErrors: 2, RxDropped: 1}},
			{Name: "eth0", DeviceCounters: routing.DeviceCounters{TxBytes: 9000}},
		}})
	for _, want := range []string{
		`weft_device_packets_total{device="flannel.1",direction="egress",scope="overlay"} 5`,
		`weft_device_bytes_total{device="flannel.1",direction="ingress",scope="overlay"} 700`,
		`weft_device_errors_total{device="flannel.1",direction="egress",scope="overlay"} 2`,
		`weft_device_dropped_packets_total{device="flannel.1",direction="ingress",scope="overlay"} 1`,
		`weft_device_bytes_total{device="eth0",direction="egress",scope="host"} 9000`, `weft_peers 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if no := regexp.MustCompile(
		`(?m)^weft_(delivered|received|dropped|kernel_dropped|worker|offload|icmp|ports|strangers)\w*[ {].*`).FindString(text); no != "" {
		t.Errorf("%s: weftd moves no packet here", no)
	}
	if text := scrape(t, &control.Snapshot{}); strings.Contains(text, "\nweft_device_") {
		t.Error("a node whose packets weftd moves has counters of devices")
	}
}

// A scrape shows each metric by itself, so that its help text may not refer to another's.
func TestEachHelpStandsAlone(t *testing.T) {
	seen := map[string]string{}
	for _, m := range Metrics() {
		if other, twice := seen[m.Help]; twice || strings.HasSuffix(m.Help, " these.") {
			t.Errorf("%s: %q says nothing by itself (%s)", m.Name, m.Help, other)
		}
		seen[m.Help] = m.Name
	}
}
