package tunnel

import (
	"fmt"
	"strings"
	"testing"
)

// packetsAlone is a wire that takes packets each by itself, many in a call.
type packetsAlone struct {
	fakeWire
	calls []string // the sizes of each call's packets, with where they go and their ECN field
}

func (f *packetsAlone) transmitEach(r *Ring, n int) {
	u, at := &r.io.send, 1
	words := []string{fmt.Sprintf("%v ecn %d:", u.first.Outer.Addr(), u.first.OuterECN)}
	for _, d := range u.parts[:n] {
		words = append(words, datagramWords(pieces(u.iov[at:at+d.iovecs])))
		at += d.iovecs
		if d.packets != 1 {
			f.tb.Errorf("%d packets in one", d.packets)
		}
	}
	if at != u.used || u.packets != n {
		f.tb.Errorf("%d of %d pieces, %d packets of %d owners", at, u.used, n, u.packets)
	}
	f.calls = append(f.calls, strings.Join(words, " "))
}

// A wire that takes packets each by itself gets all of a batch to one peer together, whatever their sizes.
func TestPacketsLeaveTogether(t *testing.T) {
	super := outgoing{size: 2540, mss: 1000}
	for _, tt := range []struct {
		name string
		send []outgoing
		want []string
	}{
		{"sizes that no run has", of(0, 64, 1400, 594, 1400), []string{"192.0.2.2 ecn 0: 64 1400 594 1400"}},
		{"a superpacket among others", append(append(of(0, 64), super), of(0, 1400)...),
			[]string{"192.0.2.2 ecn 0: 64 1040 1040 540 1400"}},
		{"two peers", []outgoing{{size: 64}, {size: 64, to: 3}, {size: 80}, {size: 90, to: 3}},
			[]string{"192.0.2.2 ecn 0: 64 80", "192.0.2.3 ecn 0: 64 90"}},
		{"a congestion mark", []outgoing{{size: 64}, {size: 80, ecn: 3}, {size: 90}},
			[]string{"192.0.2.2 ecn 0: 64", "192.0.2.2 ecn 3: 80", "192.0.2.2 ecn 0: 90"}},
	} {
		f := &packetsAlone{fakeWire: fakeWire{tb: t}}
		w := newRunWriter(f, UDPOptions{}, "fake", false)
		ps := packets(tt.send, 1472)
		w.writeRuns(NewRing(), ps)
		if got := strings.Join(f.calls, "\n"); got != strings.Join(tt.want, "\n") || len(f.sends) > 0 {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, strings.Join(tt.want, "\n"))
		}
		for i, p := range ps {
			if p.verdict != delivered {
				t.Errorf("%s: packet %d has verdict %d", tt.name, i, p.verdict)
			}
		}
	}
	// A batch of more than a call takes needs several.
	f := &packetsAlone{fakeWire: fakeWire{tb: t}}
	w := newRunWriter(f, UDPOptions{}, "fake", false)
	sizes := make([]int, batchSize)
	for i := range sizes {
		sizes[i] = 28 + i
	}
	w.writeRuns(NewRing(), packets(of(0, sizes...), 1472))
	if want := (batchSize + maxRun - 1) / maxRun; len(f.calls) != want {
		t.Errorf("%d calls for %d packets, want %d", len(f.calls), batchSize, want)
	}
}
