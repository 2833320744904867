package routing

import (
	"strings"
	"testing"
)

func TestUserVTEPSaysWhatItLacks(t *testing.T) {
	for _, c := range []struct {
		v    userVTEP
		want []string
	}{
		{userVTEP{vxlan: new(vxlan)}, nil},
		{userVTEP{new(vxlan), "no module"}, []string{"in user space: no module"}},
		{userVTEP{vxlan: &vxlan{GBP: true}}, []string{"no effect in user space"}},
		{userVTEP{vxlan: &vxlan{Learning: true}, why: "no module"}, []string{"no module", "no effect"}},
	} {
		got := c.v.note()
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
