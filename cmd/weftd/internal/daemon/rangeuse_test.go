package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
)

// From four fifths on the operator is told, before a node finds no subnet.
func TestTheRangesEndIsTold(t *testing.T) {
	c, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.42.0.0/24","SubnetLen":28}`))
	if err != nil {
		t.Fatal(err)
	}
	all := c.Use(nil)[0].All
	for n := range int(all) + 1 {
		set := lease.Set{Config: c}
		for i := range n {
			s := lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(16 * (i + 1))}), 28)}
			if set.Own.Subnets = s; i > 0 {
				set.Peers = append(set.Peers, lease.Record{Subnets: s})
			}
		}
		if n > 0 {
			set.Own.Subnets = lease.Subnets{V4: netip.MustParsePrefix("10.42.0.16/28")}
		}
		note := rangeNote(set)
		if (100*n/int(all) >= 80) != strings.HasPrefix(note, fmt.Sprintf("%d of %d subnets of 10.42.0.0/24 are taken: ", n, all)) {
			t.Errorf("%d of %d: %q", n, all, note)
		}
	}
}
