package probe

import (
	"net/netip"
	"testing"
	"time"
)

// What a rule for OUTPUT of this host drops is not blamed on the peer: the kernel says so to who sends, which
// is the probe's socket or the data plane's.
func TestTheOwnFirewallIsNotThePeers(t *testing.T) {
	for name, c := range map[string]struct {
		event   func(peer *node, n uint64) Event
		silence Silence
	}{
		"inside": {func(p *node, _ uint64) Event { return Unsent{p.addr, OwnFirewall} }, Unsendable},
		"on the underlay": {func(p *node, n uint64) Event {
			return Traffic{Packets: map[netip.Addr]uint64{p.under: 7}, Refused: map[netip.Addr]uint64{p.under: n}}
		}, Unsendable},
		"drops of before": {func(p *node, _ uint64) Event {
			return Traffic{Packets: map[netip.Addr]uint64{p.under: 7}, Refused: map[netip.Addr]uint64{p.under: 9}}
		}, UnderlayOnly},
	} {
		w := newWorld(t, 3, 9)
		w.meet(1472)
		w.run(time.Minute)
		me, peer := w.nodes[0], w.nodes[1]
		w.do(me, c.event(peer, 3))
		w.do(me, c.event(peer, 3))
		w.lost = func(a, b *node, _ int) bool { return a == me && b == peer || a == peer && b == me }
		for n := uint64(3); me.of(peer).Answers == Yes; n++ {
			w.run(time.Second)
			w.do(me, c.event(peer, n))
		}
		if s := me.of(peer); s.Silence != c.silence || s.Fact == "" {
			t.Errorf("%s: silence %d, %q, want %d", name, s.Silence, s.Fact, c.silence)
		}
	}
}
