package tunnel

import (
	"sync"
	"testing"

	"weft/tunnel/port"
)

// TestWhatBecameOfAPacketIsCountedFirst reads the totals while a worker publishes batches: a packet that is
// read as received has been delivered or dropped in the same reading.
func TestWhatBecameOfAPacketIsCountedFirst(t *testing.T) {
	var c counters
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range 100_000 {
			var b tally
			b.egress.Received, b.egress.Delivered, b.egress.Drops[port.DropTTL] = 3, 2, 1
			c.add(&b)
		}
	})
	defer wg.Wait()
	for reads := 0; ; reads++ {
		var s Stats
		c.addTo(&s)
		if f := s.Egress; f.Received > f.Delivered+f.Drops[port.DropTTL] {
			t.Fatalf("received %d, and only %d delivered and %d dropped", f.Received, f.Delivered,
				f.Drops[port.DropTTL])
		}
		select {
		case <-done:
			if s = (Stats{}); reads == 0 {
				t.Fatal("nothing was read meanwhile")
			}
			c.addTo(&s)
			if f := s.Egress; f.Received != 300_000 || f.Delivered != 200_000 || f.Drops[port.DropTTL] != 100_000 {
				t.Fatalf("%+v in the end", f)
			}
			return
		default:
		}
	}
}
