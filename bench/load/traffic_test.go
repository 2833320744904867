package load

import (
	"slices"
	"testing"
)

func TestSequence(t *testing.T) {
	mixed := Traffic{Mode: SendTo, Payloads: []int{18, 548, 1372}, Weights: []int{7, 4, 1}, Flows: 1000}
	l := mixed.sequence()
	if !slices.Equal(l, mixed.sequence()) {
		t.Error("two sequences of the same traffic differ")
	}
	flows, sizes := map[uint16]int{}, map[uint16]int{}
	same := 0
	for i, s := range l {
		flows[s.flow]++
		sizes[s.payload]++
		if i > 0 && l[i-1].flow == s.flow {
			same++
		}
	}
	if len(flows) != 1000 || sizes[18]*4 != sizes[548]*7 || sizes[18] != sizes[1372]*7 || len(sizes) != 3 {
		t.Errorf("%d flows, sizes %v", len(flows), sizes)
	}
	for f, n := range flows {
		if n != len(l)/1000 {
			t.Fatalf("flow %d has %d of %d datagrams", f, n, len(l))
		}
	}
	if same > len(l)/100 {
		t.Errorf("%d of %d datagrams follow one of their own flow", same, len(l))
	}
	if l := Single(Segment, 64).sequence(); len(l) != 1 || l[0].payload != 64 {
		t.Errorf("one flow: %v", l)
	}
}
