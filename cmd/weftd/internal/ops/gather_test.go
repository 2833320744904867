package ops

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/tunnel"
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
