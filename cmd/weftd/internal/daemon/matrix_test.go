package daemon

import (
	"net/netip"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing/probe"
)

// Rows find their records, cells their nodes, and who has not told says why.
func TestMatrixOfRowsAndRecords(t *testing.T) {
	record := func(n byte, node, name string, weft bool) lease.Record {
		r := lease.Record{Subnets: lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, n, 0}), 24)},
			Attrs: lease.Attrs{PublicIP: netip.AddrFrom4([4]byte{192, 0, 2, n})}}
		if weft {
			r.Weft = &lease.Weft{Node: node, Name: name}
		}
		return r
	}
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 42, n, 0}) }
	peers := []lease.Record{record(2, "id2", "b", true), record(3, "", "", false), record(4, "id4", "z", true),
		record(5, "id5", "skipped", true)}
	m := matrixOf(probe.Matrix{Full: true, Rows: []probe.Row{
		{Of: 3, Answering: 2, Silent: 1, Cells: []probe.Cell{
			{Peer: "id2", Addr: at(2), Answers: probe.Yes, RTT: time.Millisecond, Out: 25, In: -1},
			{Peer: "10.42.3.0/24", Addr: at(3), ByICMP: true, Answers: probe.Yes, Out: 0, In: -1},
			{Peer: "id4", Addr: at(4), Answers: probe.No, Silence: probe.HeardOnly, Heard: true, Out: -1, In: -1,
				For: time.Minute},
		}},
		{Peer: "id2", Telling: probe.Told, Of: 1, Answering: 1,
			Cells: []probe.Cell{{Here: true, Addr: at(1), Answers: probe.Yes, Out: -1, In: -1},
				{Addr: at(9), Answers: probe.No, Out: -1, In: -1}}},
		{Peer: "10.42.3.0/24", Telling: probe.Mute}, {Peer: "id4", Telling: probe.Unheard},
	}}, control.MatrixNode{Name: "m", Self: true}, peers)
	names, tells := "", ""
	for _, n := range m.Nodes {
		names, tells = names+n.Name+" ", tells+n.Tells+" "
	}
	if names != "10.42.3.0/24 b m skipped z " || tells != "no yes yes no no " || !m.Full {
		t.Fatalf("%s: %s", names, tells)
	}
	own := m.Nodes[2].Seen
	if len(own) != 3 || own[0].Node != 1 || own[0].Name != "b" || *own[0].LossOut != 0.25 ||
		own[0].LossIn != nil || own[0].RTT != 1e6 || own[1].By != "icmp" || *own[1].Loss != 0 ||
		own[1].LossOut != nil ||
		own[2].Node != 4 || own[2].Answers != "no" || own[2].Silence != control.SilentHeard || !own[2].Heard ||
		own[2].For != 60 {
		t.Errorf("own: %+v", own)
	}
	if seen := m.Nodes[1].Seen; len(seen) != 2 || seen[0].Node != 2 || seen[1].Node != -1 || seen[1].Name != "" {
		t.Errorf("b's: %+v", seen)
	}
}
