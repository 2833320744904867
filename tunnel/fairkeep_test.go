package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/fair"
	"weft/tunnel/port"
)

// releasing is a port that counts how often it is told to hold nobody back.
type releasing struct {
	port.Port
	times int
}

func (*releasing) Fill() float64 { return 0 }

func (r *releasing) Throttle(l []port.ThrottledSource) error {
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
	a := &attachedPort{port: p}
	a.fair.Throttled = []fair.Throttled{{Addr: netip.MustParseAddr("192.0.2.2"), Share: 0.5}}
	e.attached[1] = a
	e.Pause()
	if p.times != 1 || len(a.fair.Throttled) > 0 {
		t.Errorf("told %d times, held back: %v", p.times, a.fair.Throttled)
	}
}
