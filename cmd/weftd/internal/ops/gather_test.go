package ops

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weft/lease"
	"weft/routing"
	"weft/tunnel"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func addrOf(s string) netip.Addr { return netip.MustParseAddr(s) }

// reference makes the library's collectors, with all of their checks, write the same metrics.
type reference struct {
	s       Snapshot
	metrics []metric
}

// Describe implements prometheus.Collector: nothing is checked beforehand.
func (reference) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r reference) Collect(ch chan<- prometheus.Metric) {
	for _, m := range r.metrics {
		d := prometheus.NewDesc(m.name, m.help, m.labels, nil)
		m.read(&r.s, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, m.kind, v, labels...)
		})
	}
}

func TestTextIsThatOfPrometheusLibrary(t *testing.T) {
	s := Snapshot{
		Version: "v1\\\"\n", Node: "a", Ready: true, LeaseExpires: time.Unix(1763769600, 123e6), StoreRevision: 1 << 60,
		Rejected: map[lease.RejectReason]int{lease.RejectValue: 2},
		Backend:  routing.Status{MTU: 1472, LastReconcile: time.Now()},
		Peers: []tunnel.PeerStats{
			{Name: "evil\"} 1\nweft_ready{x=\"\\", Addr: addrOf("192.0.2.1"), TxBytes: 1 << 63, LastRx: time.Unix(9, 0)},
			{Name: "ü", TxPackets: 7},
		},
		Workers: make([]tunnel.WorkerStats, 2),
	}
	s.Tunnel.Offloads = []tunnel.OffloadStats{{Calls: 3}}
	reg := prometheus.NewRegistry()
	reg.MustRegister(reference{s, families()})
	w := newRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var ours []string
	for line := range strings.Lines(scrape(t, s)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "weft_") || line[0] == '#' && strings.HasPrefix(f[2], "weft_") {
			ours = append(ours, line)
		}
	}
	got, want := ours, slices.Collect(strings.Lines(w.Body.String()))
	slices.Sort(got) // the library sorts families, and values within them
	slices.Sort(want)
	if w.Code != http.StatusOK || len(want) < 100 {
		t.Fatalf("the reference: %d, %d lines", w.Code, len(want))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("line %d:\n%q\nwant\n%q", i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
	}
}

// A name that is not UTF-8 breaks neither the page nor the daemon.
func TestAnyNameIsALabel(t *testing.T) {
	if text := scrape(t, Snapshot{Peers: []tunnel.PeerStats{{Name: "\xff\xfe"}}}); !strings.Contains(text, "weft_peer_mtu_bytes{peer=\"\ufffd\"} 0\n") {
		t.Error("a name of bytes that are no text")
	}
}

// The peers, of which there may be thousands, are named once for a page, and not for every family.
func TestPeersAreNamedOnceForAPage(t *testing.T) {
	s := Snapshot{Peers: []tunnel.PeerStats{{Name: "n"}, {Name: "n", Addr: addrOf("192.0.2.1")}, {Name: "n", Addr: addrOf("192.0.2.1")}, {Name: "m"}}}
	want, families := "n, n 192.0.2.1, m", 0
	for _, m := range peerFamilies() {
		if len(m.labels) == 0 || m.name == "weft_peer_info" { // which is of the records
			continue
		}
		var names []string
		m.read(&s, func(_ float64, labels ...string) { names = append(names, labels[0]) })
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s, family %d: %s, want %s", m.name, families, got, want)
		}
		families++
		s.Peers[3].Name = "n" // whoever looks again sees it
	}
	if families < 2 {
		t.Errorf("%d families", families)
	}
}

// A scrape at ten thousand peers.
func BenchmarkScrape(b *testing.B) {
	s := Snapshot{Peers: make([]tunnel.PeerStats, 10000), Infos: make([]PeerInfo, 10000)}
	for i := range s.Peers {
		name, addr := fmt.Sprint("node-", i), netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		s.Peers[i] = tunnel.PeerStats{Name: name, Addr: addr, TxBytes: 12345678, RxBytes: 2345678, TxPackets: 12345}
		s.Infos[i] = PeerInfo{Name: name, ID: "0123456789abcdef", PublicIP: addr, Subnets: "10.42.1.0/24", Backend: "udp"}
	}
	h := Handler(ready0, func() Snapshot { return s })
	b.ReportAllocs()
	for b.Loop() {
		w := newRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		b.SetBytes(int64(w.Body.Len()))
	}
}
