package tunnel

import (
	"testing"
	"unsafe"

	"weft/tunnel/port"
)

// TestACaptureReadsAllWorkers has one worker that copies faster than the reader reads: what the other one
// copied, which often is the other direction, is read in its turn all the same.
func TestACaptureReadsAllWorkers(t *testing.T) {
	c := &Capture{}
	for range 2 {
		c.rings = append(c.rings, newCaptureRing(2, port.MaxPacket))
	}
	w := &worker{}
	copied := func(r *captureRing, at int64) {
		if r.room(1) == nil {
			t.Fatal("no room")
		}
		w.now = at
		r.write(w, &port.Packet{}, 1, 1)
		r.publish()
	}
	copied(c.rings[0], 2)
	copied(c.rings[0], 4)
	copied(c.rings[1], 3)
	copied(c.rings[1], 5)
	for want := int64(2); want <= 5; want++ {
		copied(c.rings[0], 100+want)
		if p, ok := c.Next(); !ok || p.Time.UnixNano() != want {
			t.Errorf("got %v %d, want %d", ok, p.Time.UnixNano(), want)
		}
	}
}

// TestACapturesMemoryIsBounded adds up what captures take: with many workers, whose shares have a least size,
// and of packets that are cut.
func TestACapturesMemoryIsBounded(t *testing.T) {
	for _, tt := range []struct{ workers, snapLen, most int }{{1, port.MaxPacket, 5 << 20},
		{2, port.MaxPacket, 5 << 20},
		{8, port.MaxPacket, 6 << 20}, {8, 128, 3 << 20}, {1, 128, 2 << 20}} {
		n := 0
		for range tt.workers {
			r := newCaptureRing(tt.workers, tt.snapLen)
			n += int(unsafe.Sizeof(*r)) + len(r.data) + len(r.records)*int(unsafe.Sizeof(captureRecord{}))
			if len(r.data) < leastPackets*(tt.snapLen+1) || len(r.records) < leastRecords {
				t.Errorf("%+v: a share of %d bytes, %d packets", tt, len(r.data), len(r.records))
			}
		}
		if n > tt.most {
			t.Errorf("%+v: %d bytes", tt, n)
		}
		t.Logf("%d workers, %d bytes of a packet: %d KiB", tt.workers, tt.snapLen, n>>10)
	}
}
