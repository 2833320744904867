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

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
	"weft/tunnel/port"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func addrOf(s string) netip.Addr { return netip.MustParseAddr(s) }

// pagesOf are the pages of s, with a metric of everything.
func pagesOf(s *control.Snapshot) Pages {
	return Pages{Snapshot: func(control.Parts) *control.Snapshot { return s }, PerPeer: true, PerPod: true}
}

// nodeOf is the record of a node that runs weft.
func nodeOf(name, id string, a lease.Attrs, subnets lease.Subnets) lease.Record {
	a.Weft = &lease.Weft{Name: name, Node: id}
	return lease.Record{Attrs: a, Subnets: subnets}
}

// reference makes the library's collectors, with all of their checks, write the same metrics.
type reference struct{ page *page }

// Describe implements prometheus.Collector: nothing is checked beforehand.
func (reference) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r reference) Collect(ch chan<- prometheus.Metric) {
	for _, m := range Metrics() {
		d := prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
		m.read(r.page, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, m.Kind, v, labels...)
		})
	}
}

func TestTextIsThatOfPrometheusLibrary(t *testing.T) {
	s := &control.Snapshot{
		Version: "v1\\\"\n", NodeID: "a",
		Lease: lease.Status{
			Own: lease.Record{Expires: time.Unix(1763769600, 123e6)}, Revision: 1 << 60,
			Rejected: []lease.Rejected{{Reason: lease.RejectValue}, {Reason: lease.RejectValue}},
		},
		Backend: routing.Status{MTU: 1472, LastReconcile: time.Now()},
		Plane: &control.Plane{
			Peers: []tunnel.PeerStats{
				{Name: "evil\"} 1\nweft_ready{x=\"\\", Addr: addrOf("192.0.2.1"), TxBytes: 1 << 63,
					LastRx: time.Unix(9, 0)},
				{Name: "ü", TxPackets: 7},
			},
			Workers: make([]tunnel.WorkerStats, 2),
			Stats:   tunnel.Stats{Offloads: []port.OffloadStats{{Calls: 3}}},
		},
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(reference{newPage(s)})
	w := newRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var ours []string
	for line := range strings.Lines(scrape(t, s)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "weft_") || line[0] == '#' &&
			strings.HasPrefix(f[2], "weft_") {
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
	if text := scrape(t, &control.Snapshot{
		Plane: &control.Plane{Peers: []tunnel.PeerStats{{Name: "\xff\xfe"}}}}); !strings.Contains(text,
		"weft_peer_mtu_bytes{peer=\"\ufffd\"} 0\n") {
		t.Error("a name of bytes that are no text")
	}
}

// A scrape at ten thousand peers.
func BenchmarkScrape(b *testing.B) {
	s := &control.Snapshot{Plane: &control.Plane{Peers: make([]tunnel.PeerStats, 10000)},
		Records: make([]lease.Record, 10000)}
	for i := range s.Records {
		name, addr := fmt.Sprint("node-", i), netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		s.Plane.Peers[i] = tunnel.PeerStats{Name: name, Addr: addr, TxBytes: 12345678, RxBytes: 2345678,
			TxPackets: 12345}
		s.Records[i] = nodeOf(name, "0123456789abcdef", lease.Attrs{PublicIP: addr},
			lease.Subnets{V4: netip.PrefixFrom(addr, 24)})
	}
	h := Handler(pagesOf(s))
	b.ReportAllocs()
	for b.Loop() {
		w := newRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		b.SetBytes(int64(w.Body.Len()))
	}
}
