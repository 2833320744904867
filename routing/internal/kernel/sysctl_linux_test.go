package kernel_test

import (
	"errors"
	"strings"
	"testing"

	"weft/routing/internal/kernel/kerneltest"
	"weft/test/await"
	"weft/test/netns"
)

// A link that was flannel's keeps what packets go by, and loses only the address that it has generated.
func TestSettingsKeepWhatIsOnTheLink(t *testing.T) {
	k := kerneltest.Enter(t)
	netns.EtherLink(t, "flannel6", 1430, "fd42:0:0:1::/128")
	netns.IP(t, "neigh add fd42:: lladdr 02:00:00:00:00:01 dev flannel6 nud permanent")
	netns.IP(t, "route add fd42::/64 via fd42:: dev flannel6 onlink")
	all := func() string {
		return netns.IP(t, "-6 addr show dev flannel6 scope global") + netns.IP(t, "-6 route show root fd00::/8") +
			netns.IP(t, "-6 neigh show nud permanent")
	}
	generated := func() string { return netns.IP(t, "-6 -br addr show dev flannel6 scope link") }
	await.OK(t, "an address is generated", func() error {
		if !strings.Contains(generated(), "fe80::") {
			return errors.New(generated())
		}
		return nil
	})
	before := all()
	if err := k.SetIPv6("flannel6", true); err != nil {
		t.Fatal(err)
	}
	if now := all(); now != before || strings.Contains(generated(), "fe80::") {
		t.Errorf("before:\n%snow:\n%s%s", before, now, generated())
	}
}
