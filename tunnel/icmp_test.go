package tunnel

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	var b rateLimit
	now := int64(time.Hour)
	for i := range icmpBurst {
		if !b.allow(now) {
			t.Fatalf("token %d refused, want a burst of %d", i, icmpBurst)
		}
	}
	if b.allow(now) {
		t.Fatal("a token beyond the burst was given")
	}
	now += int64(time.Second) / 2
	got := 0
	for b.allow(now) {
		got++
	}
	if got != icmpRate/2 {
		t.Errorf("%d tokens after half a second, want %d", got, icmpRate/2)
	}
	if b.allow(now - int64(time.Minute)) {
		t.Error("a clock that goes back gave a token")
	}
}
