package tunnel

import "testing"

// TestACaptureReadsAllWorkers has one worker that copies faster than the reader reads: what the other one copied, which
// often is the other direction, is read in its turn all the same.
func TestACaptureReadsAllWorkers(t *testing.T) {
	c := &Capture{}
	for range 2 {
		c.rings = append(c.rings, &captureRing{data: make([]byte, captureLeast), records: make([]captureRecord, captureRecords)})
	}
	w := &worker{}
	copied := func(r *captureRing, at int64, void bool) {
		if r.room(1) == nil {
			t.Fatal("no room")
		}
		w.now = at
		r.write(w, &Packet{}, 1, 1).void = void
		r.publish()
	}
	copied(c.rings[0], 1, true)
	copied(c.rings[0], 2, false)
	copied(c.rings[0], 4, false)
	copied(c.rings[1], 3, false)
	copied(c.rings[1], 5, false)
	for want := int64(2); want <= 5; want++ {
		copied(c.rings[0], 100+want, false)
		if p, ok := c.Next(); !ok || p.Time.UnixNano() != want {
			t.Errorf("got %v %d, want %d", ok, p.Time.UnixNano(), want)
		}
	}
}
