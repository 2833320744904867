package fair

import (
	"net/netip"
	"testing"
)

// sends is what peer number n sent since the tick before.
func sends(n byte, packets uint64) Arrival {
	return Arrival{Addr: netip.AddrFrom4([4]byte{192, 0, 2, n}), Sources: 1, Packets: packets, Active: true}
}

// shares are what is let through of each peer, by the last byte of its address.
func (f *Queue) shares() map[byte]float64 {
	m := map[byte]float64{}
	for _, h := range f.Throttled {
		m[h.Addr.As4()[3]] = h.Share
	}
	return m
}

// TestWhoIsHeldBack feeds the same tick again and again.
func TestWhoIsHeldBack(t *testing.T) {
	silent := sends(9, 0)
	silent.Active = false
	many := sends(2, 5000)
	many.Sources = maxSources + 1
	crowd := []Arrival{sends(100, 1)}
	for i := byte(1); i <= 2*maxSources; i++ {
		crowd = append(crowd, sends(i, 5000))
		crowd = append(crowd, sends(100+i, 1))
	}
	for name, tt := range map[string]struct {
		fill  float64
		from  []Arrival
		ticks int
		want  map[byte]float64
	}{
		"a flood": {0.9, []Arrival{sends(2, 5000), sends(3, 50)}, fullTicks,
			map[byte]float64{2: 0.5}},
		"a burst": {0.9, []Arrival{sends(2, 5000), sends(3, 50)}, fullTicks - 1, nil},
		"a flood goes on": {0.9, []Arrival{sends(2, 5000), sends(3, 50)}, fullTicks + 2,
			map[byte]float64{2: 0.125}},
		"a flood for ever": {0.9, []Arrival{sends(2, 5000), sends(3, 50)}, 100,
			map[byte]float64{2: leastShare}},
		"beside somebody who idles": {0.9, []Arrival{sends(2, 5000), sends(3, 0)}, fullTicks,
			map[byte]float64{2: 0.5}},
		"one alone":             {1, []Arrival{sends(2, 5000)}, 100, nil},
		"one beside the silent": {1, []Arrival{sends(2, 5000), silent}, 100, nil},
		"bulk that is read":     {0.4, []Arrival{sends(2, 5000), sends(3, 50)}, 100, nil},
		"two alike":             {1, []Arrival{sends(2, 5000), sends(3, 5200)}, 100, nil},
		"two floods and a ping": {1, []Arrival{sends(2, 5000), sends(3, 1), sends(4, 5200)}, fullTicks,
			map[byte]float64{2: 0.5, 4: 0.5}},
		"more sources than fit": {1, []Arrival{many, sends(3, 1)}, 100, nil},
	} {
		var f Queue
		for range tt.ticks {
			f.Tick(tt.fill, tt.from)
		}
		got := f.shares()
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v is let through, want %v", name, got, tt.want)
		}
		for k, v := range tt.want {
			if got[k] != v {
				t.Errorf("%s: %v is let through, want %v", name, got, tt.want)
			}
		}
	}
	var f Queue
	for range 100 {
		f.Tick(1, crowd)
	}
	if len(f.Throttled) != maxSources {
		t.Errorf("%d of a crowd are held back, want %d", len(f.Throttled), maxSources)
	}
}

// TestHeldPeersComeBack lets a flood end, and other things happen to who is held back.
func TestHeldPeersComeBack(t *testing.T) {
	held := func() *Queue {
		f := &Queue{}
		for range 10 {
			f.Tick(1, []Arrival{sends(2, 5000), sends(3, 50)})
		}
		if len(f.Throttled) != 1 || f.Throttled[0].Share != leastShare {
			t.Fatalf("held back: %v", f.shares())
		}
		return f
	}

	f, last := held(), leastShare
	ticks := 0
	for ; len(f.Throttled) > 0; ticks++ {
		if ticks > 60 {
			t.Fatalf("after three seconds with an empty queue: %v", f.shares())
		}
		if f.Tick(0, []Arrival{sends(2, 80), sends(3, 50)}) && len(f.Throttled) > 0 {
			if f.Throttled[0].Share != last*1.5 {
				t.Errorf("%v follows %v", f.Throttled[0].Share, last)
			}
			last = f.Throttled[0].Share
		}
	}
	if ticks < 10 {
		t.Errorf("all is let through again after %d ticks", ticks)
	}

	f = held() // between full and empty nothing moves
	if f.Tick((Full+empty)/2, []Arrival{sends(2, 5000), sends(3, 50)}) ||
		f.Throttled[0].Share != leastShare {
		t.Errorf("half full: %v", f.shares())
	}
	silent := sends(3, 0)
	silent.Active = false
	if f = held(); !f.Tick(1, []Arrival{sends(2, 5000), silent}) || len(f.Throttled) > 0 {
		t.Errorf("alone again: %v", f.shares())
	}
	if f = held(); !f.Tick(0.4, []Arrival{sends(3, 50), sends(4, 50)}) || len(f.Throttled) > 0 {
		t.Errorf("no peer any more: %v", f.shares())
	}
	// Who is held takes its share by then: another fills the queue.
	if f = held(); !f.Tick(1, []Arrival{sends(2, 80), sends(3, 50), sends(4, 5000)}) || f.shares()[4] != 0.5 ||
		f.shares()[2] != leastShare {
		t.Errorf("a second flood: %v", f.shares())
	}
}
