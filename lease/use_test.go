package lease

import (
	"net/netip"
	"testing"
)

func TestUse(t *testing.T) {
	c, err := ParseNetworkConfig(
		[]byte(`{"Network":"10.42.0.0/16","SubnetLen":24,"EnableIPv6":true,"IPv6Network":"fd00::/48"}`))
	if err != nil {
		t.Fatal(err)
	}
	v4 := func(texts ...string) (out []Subnets) {
		for _, s := range texts {
			out = append(out, Subnets{V4: netip.MustParsePrefix(s)})
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		taken []Subnets
		want  uint64
	}{
		{"nothing", nil, 0},
		{"two", v4("10.42.1.0/24", "10.42.2.0/24"), 2},
		{"one twice", v4("10.42.1.0/24", "10.42.1.0/24"), 1},
		{"others", v4("10.43.1.0/24", "192.0.2.0/24"), 0},
		{"outside of what is given out", v4("10.42.0.0/24"), 0}, // SubnetMin is 10.42.1.0
		{"a shorter one", v4("10.42.4.0/22"), 4},
		{"halves of one", v4("10.42.1.0/25", "10.42.1.128/25"), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := c.Use(tt.taken)
			if len(u) != 2 || u[0].All != 255 || u[0].Taken != tt.want || u[1].Taken != 0 ||
				u[1].Network != c.IPv6Network {
				t.Errorf("got %+v, want %d of 255 taken", u, tt.want)
			}
		})
	}
	if got := (Use{All: 255, Taken: 254}).Percent(); got != 99 {
		t.Errorf("one is left: %d %%", got)
	}
}
