package pods

import (
	"fmt"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// A counter that goes back is taken for one that began anew.
func TestTotalsDoNotGoBackWhenAPodGoes(t *testing.T) {
	s, p := attached(t, Options{}, "1", "2")
	p.before = func() {
		if got := s.Totals(); got.SentPackets != 3 {
			t.Errorf("while a port is closed pods have sent %d, want 3", got.SentPackets)
		}
	}
	if _, err := s.Detach(request("2").Key); err != nil {
		t.Fatal(err)
	}
	if p.before = nil; s.Totals().SentPackets != 3 {
		t.Errorf("then %d, want 3", s.Totals().SentPackets)
	}
}

// A status names the pods that moved most, and not hundreds.
func TestStatusNamesTheBusiestPods(t *testing.T) {
	var all []podport.Pod
	for i := range 2 * control.MostBusiest {
		all = append(all, podport.Pod{Request: podport.Request{
			Key: podport.Key{ID: fmt.Sprint(i), Interface: "eth0"}},
			Traffic: podport.Traffic{SentBytes: uint64(i % 3), ReceivedBytes: uint64(i * 10)},
			Drops:   []podport.Drop{{Packets: 2}, {Packets: 3}}})
	}
	got := Busiest(all)
	if len(got) != control.MostBusiest {
		t.Fatalf("%d pods, want %d", len(got), control.MostBusiest)
	}
	for i, p := range got {
		if want := fmt.Sprint(2*control.MostBusiest - 1 - i); p.ID != want || p.RefusedPackets != 5 ||
			p.ReceivedBytes == 0 {
			t.Errorf("place %d has %+v, want pod %s", i, p, want)
		}
	}
	if Busiest(nil) != nil {
		t.Error("no pods are some")
	}
}
