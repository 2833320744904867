package routing

import (
	"strings"
	"testing"
)

func TestUserVTEPSaysWhatItLacks(t *testing.T) {
	for _, c := range []struct {
		v    vxlan
		why  string
		want []string
	}{
		{vxlan{}, "", nil},
		{vxlan{}, "no module", []string{"in user space: no module"}},
		{vxlan{GBP: true}, "", []string{"no effect in user space"}},
		{vxlan{Learning: true}, "no module", []string{"no module", "no effect"}},
	} {
		got := c.v.inUserSpace("", c.why).Facts().note
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%+v: %q, without %q", c.v, got, w)
			}
		}
		if c.want == nil && got != "" {
			t.Errorf("%+v: %q", c.v, got)
		}
	}
}

// TestUserVTEPKeepsDirectPeers: a peer that packets go to by a plain route still sends by the tunnel if it
// cannot.
func TestUserVTEPKeepsDirectPeers(t *testing.T) {
	d := testVXLAN(true).inUserSpace("", "").want(vxlanSituation(vxlanPeer(2)))
	if len(d.Routes) != 2 || len(d.spec.Peers) != 2 || len(d.spec.LeftOut) != 0 {
		t.Errorf("%d plain routes, peers %+v, without %+v", len(d.Routes), d.spec.Peers, d.spec.LeftOut)
	}
}
