package encap

import (
	"slices"
	"testing"
)

func flowPairHash(t testing.TB, b []byte) uint32 {
	t.Helper()
	in, err := ParseInner(b)
	if err != nil {
		t.Fatal(err)
	}
	return FlowPairHash(b, in)
}

// reversed is b with addresses and ports exchanged. The checksums do not mind.
func reversed(b []byte) []byte {
	r := slices.Clone(b)
	at, n, l4 := 12, 4, 20
	if b[0]>>4 == 6 {
		at, n, l4 = 8, 16, 40
	}
	copy(r[at:], b[at+n:at+2*n])
	copy(r[at+n:], b[at:at+n])
	copy(r[l4:], b[l4+2:l4+4])
	copy(r[l4+2:], b[l4:l4+2])
	return r
}

func TestFlowPairHash(t *testing.T) {
	for _, six := range []bool{false, true} {
		l4, proto, addrs := 20, 9, 12
		if six {
			l4, proto, addrs = 40, 6, 8
		}
		base := transport(six, ProtoTCP, 100, true)
		want := flowPairHash(t, base)
		if got := flowPairHash(t, reversed(base)); got != want {
			t.Errorf("ip=%s: the other direction: %#x, was %#x", family(six), got, want)
		}
		for what, c := range map[string]struct {
			at   int
			flow bool
		}{
			"source":           {addrs + 3, true},
			"destination":      {l4 - 1, true},
			"source port":      {l4 + 1, true},
			"destination port": {l4 + 2, true},
			"protocol":         {proto, true},
			"sequence number":  {l4 + 7, false},
		} {
			b := slices.Clone(base)
			b[c.at] ^= 1
			if what == "protocol" {
				b[c.at] = ProtoUDP
			}
			if got := flowPairHash(t, b); (got != want) != c.flow {
				t.Errorf("ip=%s: %s changed: %#x, was %#x", family(six), what, got, want)
			}
		}
		// Ports that count up, as clients choose them, fill every one of eight places evenly.
		var places [8]int
		for port := range 4096 {
			b := slices.Clone(base)
			b[l4], b[l4+1] = byte(port>>8), byte(port)
			places[flowPairHash(t, b)&7]++
		}
		for _, n := range places {
			if n < 400 || n > 624 {
				t.Errorf("ip=%s: 4096 flows fill eight places with %v", family(six), places)
				break
			}
		}
	}
	if FlowPairHash(nil, Inner{TotalLen: 1}) != 0 || FlowPairHash(nil, Inner{}) != 0 {
		t.Error("a packet shorter than it says has a hash")
	}
}
