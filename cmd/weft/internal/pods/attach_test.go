package pods

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"weft/cmd/internal/podport"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// An address that no pod of this node can have is refused with those that it can, also one of a family that
// the node has not.
func TestAttachNamesTheNodesSubnets(t *testing.T) {
	n := podport.Node{Subnets: []netip.Prefix{prefix("10.42.1.0/24")}}
	for _, a := range []string{"10.42.2.7", "fd00::7"} {
		f := attachFlags{addresses: []string{a}}
		if _, err := f.subnets(n, []netip.Addr{netip.MustParseAddr(a)}); err == nil ||
			!strings.Contains(err.Error(), "10.42.1.0/24") || !strings.Contains(err.Error(), "auto") {
			t.Errorf("%s: %v", a, err)
		}
	}
	f := attachFlags{addresses: []string{"10.42.1.7"}}
	if got, err := f.subnets(n, []netip.Addr{netip.MustParseAddr("10.42.1.7")}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// Without root, addresses are reserved where the user's own weftd has its state.
func TestWhereAddressesAreReserved(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/s"}, "/var/lib/cni/networks"},
		{7, map[string]string{"HOME": "/srv/u"}, "/srv/u/.local/state/weft/" + host + "/networks"},
		{7, map[string]string{"HOME": "/srv/u", "XDG_STATE_HOME": "/s"}, "/s/weft/" + host + "/networks"},
		{7, map[string]string{"HOME": "/srv/u", "XDG_STATE_HOME": "relative"}, "/srv/u/.local/state/weft/" + host +
			"/networks"},
		{7, nil, "/var/lib/cni/networks"},
		{0, map[string]string{"WEFT_RESERVATIONS": "/lab/node1/reservations"}, "/lab/node1/reservations"},
		{7, map[string]string{"WEFT_RESERVATIONS": "/lab/node1/reservations", "HOME": "/srv/u"},
			"/lab/node1/reservations"},
		{0, map[string]string{"WEFT_RESERVATIONS": "relative"}, "/var/lib/cni/networks"},
	} {
		if got := reservations(tt.uid, func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("user %d with %v: %s, want %s", tt.uid, tt.env, got, tt.want)
		}
	}
}
