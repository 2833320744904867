package port

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRunsLeaveByTheSocketOfTheirLane: each socket has one system call.
func TestRunsLeaveByTheSocketOfTheirLane(t *testing.T) {
	f := newFakeWire(t, 64)
	f.lanes = []*UDPSocket{{fd: -2}, {fd: -3}}
	ps := packets([]outgoing{{size: 61}, {size: 62}, {size: 63, to: 3}, {size: 64, to: 3}, {size: 65}}, 1472)
	for i, p := range ps {
		p.Lane = 1 + uint8(i%2)
	}
	f.w.writeRuns(NewRing(), ps)
	if got, want := f.sent(), "61 / 65 / 63 / 62 / 64"; got != want || !slices.Equal(f.calls, []int{3, 2}) {
		t.Errorf("calls of %v sends: %s, want %s", f.calls, got, want)
	}
}

// One system call takes the runs of a batch, whoever they are for. One that the kernel refuses is counted on
// its own packets only, and the others leave.
func TestRunsOfAllPeersLeaveTogether(t *testing.T) {
	var crowded []outgoing
	for k := range 3 * 60 {
		crowded = append(crowded, outgoing{size: 100 + 7*(k%3), to: byte(2 + k/3)})
	}
	many := make([]int, BatchSize)
	for i := range many {
		many[i] = 28 + i // each a run by itself
	}
	third := func(_ int, b []byte) unix.Errno {
		if len(b) == 70 {
			return unix.EPERM
		}
		return 0
	}
	super := outgoing{size: 2540, mss: 1000}
	for _, tt := range []struct {
		name   string
		send   []outgoing
		gso    bool
		refuse func(int, []byte) unix.Errno
		calls  []int
		sent   string
		lost   int
	}{
		{name: "two peers", gso: true, send: []outgoing{{size: 64}, {size: 60, to: 3}, {size: 64}, {size: 90,
			to: 3}},
			calls: []int{3}, sent: "64 64 / 60 / 90"},
		{name: "a congestion mark", gso: true, send: []outgoing{{size: 64}, {size: 80, ecn: 3}, {size: 90}},
			calls: []int{3}, sent: "64 / 80 / 90"},
		{name: "without runs", send: append(append(of(0, 64), super), of(0, 1400)...), calls: []int{5},
			sent: "64 / 1040 / 1040 / 540 / 1400"},
		{name: "one is refused", gso: true, send: []outgoing{{size: 64}, {size: 70, to: 3}, {size: 80, to: 4}},
			refuse: third, calls: []int{1, 0, 1}, sent: "64 / !70 / 80", lost: 1},
		{name: "the first is refused", gso: true, send: []outgoing{{size: 70}, {size: 80, to: 4}, {size: 64,
			to: 5}},
			refuse: third, calls: []int{0, 2}, sent: "!70 / 80 / 64", lost: 1},
		{name: "the last is refused", gso: true, send: []outgoing{{size: 80}, {size: 64, to: 4}, {size: 70, to: 5}},
			refuse: third, calls: []int{2, 0}, sent: "80 / 64 / !70", lost: 1},
		{name: "more than a call takes", send: of(0, many...), calls: []int{maxSends, BatchSize - maxSends}},
		{name: "60 peers", gso: true, send: crowded, calls: []int{maxSends, 52}},
	} {
		f := newFakeWire(t, 64)
		f.w.gso.set(OffloadGSO, 0, tt.gso)
		f.refuse = tt.refuse
		ps := packets(tt.send, 1472)
		f.w.writeRuns(NewRing(), ps)
		if got := f.sent(); !slices.Equal(f.calls, tt.calls) || tt.sent != "" && got != tt.sent {
			t.Errorf("%s: calls of %v sends: %s\nwant %v: %s", tt.name, f.calls, got, tt.calls, tt.sent)
		}
		lost := 0
		for i, p := range ps {
			if p.Verdict == Delivered {
				continue
			}
			if lost++; p.Size != 70 || fmt.Sprint(p.Verdict.Reason()) != DropUnderlay.String() {
				t.Errorf("%s: packet %d has verdict %d", tt.name, i, p.Verdict)
			}
		}
		if lost != tt.lost {
			t.Errorf("%s: %d packets dropped, want %d", tt.name, lost, tt.lost)
		}
	}
}
