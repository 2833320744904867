package daemon

import (
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/tunnel"
)

func TestABrokenOffloadIsNoted(t *testing.T) {
	got := offloadNotes([]control.Offload{
		{Name: "pack", State: tunnel.OffloadOn.String()}, {Name: "udp-gro", State: tunnel.OffloadLost.String()}, {Name: "udp-gso", State: tunnel.OffloadBroken.String()},
	}, "eth7")
	if len(got) != 1 || !strings.HasPrefix(got[0], "udp-gso ") || !strings.Contains(got[0], "ethtool -K eth7 ") {
		t.Errorf("got %q", got)
	}
}
