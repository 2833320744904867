package pathmtu

import (
	"net/netip"
	"testing"
	"time"
)

func TestPathMTU(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	type step struct {
		at      time.Duration // since the start
		dst     netip.Addr
		claimed int
		changed bool
		want    int
	}
	sec, min := time.Second, time.Minute
	tests := map[string][]step{
		"lowered":               {{0, v4, 1400, true, 1400}},
		"one claim, not to 576": {{0, v4, 68, true, 1280}, {100 * time.Millisecond, v4, 68, false, 1280}},
		"IPv6, not below 1280": {{0, v6, 1279, false, 0}, {2 * sec, v6, 68, false, 0},
			{4 * sec, v6, 1280, true, 1280}, {6 * sec, v6, 68, false, 1280}, {8 * sec, v6, 68, false, 1280}},
		"never below 1280": {{0, v4, 600, true, 1280}, {2 * sec, v4, 600, false, 1280},
			{4 * sec, v4, 600, false, 1280}, {6 * sec, v4, 600, false, 1280}},
		"not above the link": {{0, v4, 1500, false, 0}, {sec, v4, 9000, false, 0}},
		"without a value":    {{0, v4, 0, false, 0}, {sec, v4, -1, false, 0}},
		"rate-limited": {{0, v4, 1400, true, 1400}, {50 * time.Millisecond, v4, 1300, false, 1400},
			{sec, v4, 1300, true, 1300}},
		"raised only by expiry": {{0, v4, 1300, true, 1300}, {30 * sec, v4, 1400, false, 1300},
			{61 * sec, v4, 1400, true, 1400}},
		"the same prolongs": {{0, v4, 1400, true, 1400}, {50 * sec, v4, 1400, false, 1400},
			{100 * sec, v4, 0, false, 1400}, {3 * min, v4, 0, false, 0}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var m Path
			for i, s := range steps {
				now := int64(time.Hour + s.at)
				if got := m.Learn(s.dst, s.claimed, 1500, now); got != s.changed {
					t.Errorf("step %d: learn(%d) = %v, want %v", i, s.claimed, got, s.changed)
				}
				if got := m.Get(now); got != s.want {
					t.Errorf("step %d: MTU %d, want %d", i, got, s.want)
				}
			}
		})
	}
}

// TestPathMTUIsProbed has a claim about the path to a peer that answers probes, which sends up to 1500 bytes
// now.
func TestPathMTUIsProbed(t *testing.T) {
	const cost = 28
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for name, tt := range map[string]struct {
		dst           netip.Addr
		claimed       int
		arrive        int // the largest outer size that arrives; 0 if none does
		sizes         [3]int
		refuted       bool
		want          int
		proven        bool
		wantAfterLife time.Duration // when it is believed no more
	}{
		"made up":                       {v4, 68, 1500, [3]int{576, 1280, 1500}, true, 0, false, 0},
		"made up, IPv6":                 {v6, 1280, 1500, [3]int{1280, 1280, 1500}, true, 0, false, 0},
		"true":                          {v4, 1400, 1400, [3]int{1400, 1400, 1500}, false, 1400, true, provenLife},
		"true and small":                {v4, 600, 600, [3]int{600, 1280, 1500}, false, 600, true, provenLife},
		"made up, the path half as bad": {v4, 68, 1300, [3]int{576, 1280, 1500}, false, 1280, true, provenLife},
		"nobody answers":                {v4, 1400, 0, [3]int{1400, 1400, 1500}, false, 1400, false, claimedLife},
		"nobody answers, made up":       {v4, 68, 0, [3]int{576, 1280, 1500}, false, 1280, false, claimedLife},
	} {
		t.Run(name, func(t *testing.T) {
			var m Path
			now := int64(time.Hour)
			c, ok := m.StartCheck(tt.dst, tt.claimed, 1500, cost, now)
			if !ok || c.Sizes() != tt.sizes {
				t.Fatalf("probes of %v, %v, want %v", c.Sizes(), ok, tt.sizes)
			}
			if _, again := m.StartCheck(tt.dst, tt.claimed, 1500, cost, now+int64(checkGap)); again {
				t.Error("two checks at a time")
			}
			if m.Answered(c.Token+2, 1500-cost, now) {
				t.Error("an answer with a guessed token counts")
			}
			refuted := false
			for _, size := range c.Sizes() {
				if size <= tt.arrive {
					refuted = m.Answered(c.Token, size-cost, now) || refuted
				}
			}
			if refuted != tt.refuted || m.Get(now) != 0 {
				t.Errorf("refuted %v, MTU %d before it is concluded", refuted, m.Get(now))
			}
			now += int64(AnswerTime)
			if changed, proven := m.Conclude(c.Token, now); changed != (tt.want != 0) || proven != tt.proven {
				t.Errorf("concluded: changed %v, proven %v", changed, proven)
			}
			if got := m.Get(now); got != tt.want {
				t.Errorf("MTU %d, want %d", got, tt.want)
			}
			if end := now + int64(tt.wantAfterLife); tt.want != 0 && (m.Get(end-1) != tt.want || m.Get(end) != 0) {
				t.Errorf("MTU %d, and %d after %v", m.Get(end-1), m.Get(end), tt.wantAfterLife)
			}
			if tt.want == 0 || tt.proven {
				return
			}
			// An answer that took longer than anybody waits takes back what was believed without it.
			if !m.Answered(c.Token, 1500-cost, now) || m.Get(now) != 0 {
				t.Errorf("MTU %d after a late answer", m.Get(now))
			}
		})
	}
}

// TestPathMTUOfIPv6IsNotProbedBelow1280 has a claim that no link of IPv6 can be the reason of, and is no
// reason for probes either.
func TestPathMTUOfIPv6IsNotProbedBelow1280(t *testing.T) {
	var m Path
	v6 := netip.MustParseAddr("2001:db8::1")
	for _, claimed := range []int{68, 1279} {
		if c, ok := m.StartCheck(v6, claimed, 1500, 48, int64(time.Hour)); ok {
			t.Errorf("a claim of %d is probed with %v", claimed, c.Sizes())
		}
	}
	if _, ok := m.StartCheck(v6, 1280, 1500, 48, int64(time.Hour)); !ok {
		t.Error("a claim of 1280 is not probed")
	}
}
