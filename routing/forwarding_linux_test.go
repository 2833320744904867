package routing

import (
	"errors"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

// TestForwardingFollowsTheLink has a running backend hear of what somebody does with ethtool.
func TestForwardingFollowsTheLink(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDPOf(t, k, false, `{"Type":"udp","RxUDPGROForwarding":"on"}`)
	apply(t, u, testSet("10.5.1.0/24", false))
	defer start(t, u)()
	says := func(what string) {
		t.Helper()
		await.OK(t, what, func() error {
			if s := u.Status().Forwarding; !strings.HasPrefix(s, what) {
				return errors.New(s)
			}
			return nil
		})
	}
	says("on: weft turned it on")
	netns.Command(t, "ethtool", "-K", "eth0", kernel.Forwarding, "off")
	says("off: somebody")
	if got := netns.Command(t, "ethtool", "-k", "eth0"); !strings.Contains(got, kernel.Forwarding+": off") {
		t.Errorf("on again:\n%s", got)
	}
}
