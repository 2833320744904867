package tunnel

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
	tests := map[string][]step{
		"lowered":                 {{0, v4, 1400, true, 1400}},
		"never below 576":         {{0, v4, 68, true, 576}},
		"never below 1280":        {{0, v6, 1000, true, 1280}},
		"not above the link":      {{0, v4, 1500, false, 0}, {time.Second, v4, 9000, false, 0}},
		"without a value":         {{0, v4, 0, false, 0}, {time.Second, v4, -1, false, 0}},
		"rate-limited":            {{0, v4, 1400, true, 1400}, {50 * time.Millisecond, v4, 1300, false, 1400}, {time.Second, v4, 1300, true, 1300}},
		"raised only by expiry":   {{0, v4, 1300, true, 1300}, {time.Minute, v4, 1400, false, 1300}, {11 * time.Minute, v4, 1400, true, 1400}},
		"the same again prolongs": {{0, v4, 1400, true, 1400}, {9 * time.Minute, v4, 1400, false, 1400}, {18 * time.Minute, v4, 0, false, 1400}, {20 * time.Minute, v4, 0, false, 0}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var m pathMTU
			for i, s := range steps {
				now := int64(time.Hour + s.at)
				if got := m.learn(s.dst, s.claimed, 1500, now); got != s.changed {
					t.Errorf("step %d: learn(%d) = %v, want %v", i, s.claimed, got, s.changed)
				}
				if got := m.get(now); got != s.want {
					t.Errorf("step %d: MTU %d, want %d", i, got, s.want)
				}
			}
		})
	}
}

func TestBucket(t *testing.T) {
	var b bucket
	now := int64(time.Hour)
	for i := range icmpBurst {
		if !b.take(now) {
			t.Fatalf("token %d refused, want a burst of %d", i, icmpBurst)
		}
	}
	if b.take(now) {
		t.Fatal("a token beyond the burst was given")
	}
	now += int64(time.Second) / 2
	got := 0
	for b.take(now) {
		got++
	}
	if got != icmpRate/2 {
		t.Errorf("%d tokens after half a second, want %d", got, icmpRate/2)
	}
	if b.take(now - int64(time.Minute)) {
		t.Error("a clock that goes back gave a token")
	}
}
