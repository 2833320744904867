package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
)

// sends is what peer number n sent since the tick before.
func sends(n byte, packets uint64) arrival {
	return arrival{addr: netip.AddrFrom4([4]byte{192, 0, 2, n}), sources: 1, packets: packets, active: true}
}

// shares are what is let through of each peer, by the last byte of its address.
func (f *fairness) shares() map[byte]float64 {
	m := map[byte]float64{}
	for _, h := range f.held {
		m[h.addr.As4()[3]] = h.share
	}
	return m
}

// TestWhoIsHeldBack feeds the same tick again and again.
func TestWhoIsHeldBack(t *testing.T) {
	silent := sends(9, 0)
	silent.active = false
	many := sends(2, 5000)
	many.sources = maxHeld + 1
	crowd := []arrival{sends(100, 1)}
	for i := byte(1); i <= 2*maxHeld; i++ {
		crowd = append(crowd, sends(i, 5000))
		crowd = append(crowd, sends(100+i, 1))
	}
	for name, tt := range map[string]struct {
		fill  float64
		from  []arrival
		ticks int
		want  map[byte]float64
	}{
		"a flood": {0.9, []arrival{sends(2, 5000), sends(3, 50)}, fullTicks,
			map[byte]float64{2: 0.5}},
		"a burst": {0.9, []arrival{sends(2, 5000), sends(3, 50)}, fullTicks - 1, nil},
		"a flood goes on": {0.9, []arrival{sends(2, 5000), sends(3, 50)}, fullTicks + 2,
			map[byte]float64{2: 0.125}},
		"a flood for ever": {0.9, []arrival{sends(2, 5000), sends(3, 50)}, 100,
			map[byte]float64{2: leastShare}},
		"beside somebody who idles": {0.9, []arrival{sends(2, 5000), sends(3, 0)}, fullTicks,
			map[byte]float64{2: 0.5}},
		"one alone":             {1, []arrival{sends(2, 5000)}, 100, nil},
		"one beside the silent": {1, []arrival{sends(2, 5000), silent}, 100, nil},
		"bulk that is read":     {0.4, []arrival{sends(2, 5000), sends(3, 50)}, 100, nil},
		"two alike":             {1, []arrival{sends(2, 5000), sends(3, 5200)}, 100, nil},
		"two floods and a ping": {1, []arrival{sends(2, 5000), sends(3, 1), sends(4, 5200)}, fullTicks,
			map[byte]float64{2: 0.5, 4: 0.5}},
		"more sources than fit": {1, []arrival{many, sends(3, 1)}, 100, nil},
	} {
		var f fairness
		for range tt.ticks {
			f.tick(tt.fill, tt.from)
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
	var f fairness
	for range 100 {
		f.tick(1, crowd)
	}
	if len(f.held) != maxHeld {
		t.Errorf("%d of a crowd are held back, want %d", len(f.held), maxHeld)
	}
}

// TestHeldPeersComeBack lets a flood end, and other things happen to who is held back.
func TestHeldPeersComeBack(t *testing.T) {
	held := func() *fairness {
		f := &fairness{}
		for range 10 {
			f.tick(1, []arrival{sends(2, 5000), sends(3, 50)})
		}
		if len(f.held) != 1 || f.held[0].share != leastShare {
			t.Fatalf("held back: %v", f.shares())
		}
		return f
	}

	f, last := held(), leastShare
	ticks := 0
	for ; len(f.held) > 0; ticks++ {
		if ticks > 60 {
			t.Fatalf("after three seconds with an empty queue: %v", f.shares())
		}
		if f.tick(0, []arrival{sends(2, 80), sends(3, 50)}) && len(f.held) > 0 {
			if f.held[0].share != last*1.5 {
				t.Errorf("%v follows %v", f.held[0].share, last)
			}
			last = f.held[0].share
		}
	}
	if ticks < 10 {
		t.Errorf("all is let through again after %d ticks", ticks)
	}

	f = held() // between full and empty nothing moves
	if f.tick((queueFull+queueEmpty)/2, []arrival{sends(2, 5000), sends(3, 50)}) ||
		f.held[0].share != leastShare {
		t.Errorf("half full: %v", f.shares())
	}
	silent := sends(3, 0)
	silent.active = false
	if f = held(); !f.tick(1, []arrival{sends(2, 5000), silent}) || len(f.held) > 0 {
		t.Errorf("alone again: %v", f.shares())
	}
	if f = held(); !f.tick(0.4, []arrival{sends(3, 50), sends(4, 50)}) || len(f.held) > 0 {
		t.Errorf("no peer any more: %v", f.shares())
	}
	// Who is held takes its share by then: another fills the queue.
	if f = held(); !f.tick(1, []arrival{sends(2, 80), sends(3, 50), sends(4, 5000)}) || f.shares()[4] != 0.5 ||
		f.shares()[2] != leastShare {
		t.Errorf("a second flood: %v", f.shares())
	}
}

// releasing is a port that counts how often it is told to hold nobody back.
type releasing struct {
	Port
	times int
}

func (*releasing) fill() float64 { return 0 }

func (r *releasing) hold(l []heldSource) error {
	if len(l) == 0 {
		r.times++
	}
	return nil
}

// TestPauseReleasesHeldPeers: the program that takes this one's place does not know the filter, which would
// stay.
func TestPauseReleasesHeldPeers(t *testing.T) {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &releasing{}
	a := &attached{port: p}
	a.fair.held = []heldPeer{{addr: netip.MustParseAddr("192.0.2.2"), share: leastShare}}
	e.attached[1] = a
	e.Pause()
	if p.times != 1 || len(a.fair.held) > 0 {
		t.Errorf("told %d times, held back: %v", p.times, a.fair.held)
	}
}
