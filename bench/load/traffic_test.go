package load

import (
	"slices"
	"testing"
)

func TestSequence(t *testing.T) {
	mixed := Traffic{Mode: SendTo, Payloads: []int{18, 548, 1372}, Weights: []int{7, 4, 1}, Flows: 1000}
	if err := mixed.Check(); err != nil {
		t.Fatal(err)
	}
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

func TestTrafficIsChecked(t *testing.T) {
	for what, bad := range map[string]Traffic{
		"no mode":          {Payloads: []int{64}, Flows: 1},
		"unknown mode":     Single(9, 64),
		"no size":          {Mode: SendTo, Flows: 1},
		"too small":        Single(SendTo, MinPayload-1),
		"too large":        Single(SendTo, MaxPayload+1),
		"no flow":          {Mode: SendTo, Payloads: []int{64}},
		"too many flows":   {Mode: SendTo, Payloads: []int{64}, Flows: MaxFlows + 1},
		"too many sizes":   {Mode: SendTo, Payloads: make([]int, 17), Flows: 1},
		"too many weights": {Mode: SendTo, Payloads: []int{64}, Weights: []int{1, 1}, Flows: 1},
		"weight":           {Mode: SendTo, Payloads: []int{64}, Weights: []int{-1}, Flows: 1},
		"segments, sizes":  {Mode: Segment, Payloads: []int{64, 65}, Flows: 1},
		"segments, flows":  {Mode: Segment, Payloads: []int{64}, Flows: 2},
	} {
		if bad.Check() == nil {
			t.Errorf("%s: %+v was accepted", what, bad)
		}
	}
}
