package daemon

import (
	"strings"
	"testing"
)

// A bridge in the overlay's network may be a former one of ours, or another program's: nothing is said that is not known.
func TestABridgeOutsideOurSubnetMayBeAnothers(t *testing.T) {
	got := formerText("docker0 10.42.49.1/24", "10.42.83.0/24")
	for _, want := range []string{"docker0 10.42.49.1/24", "not in this node's subnet 10.42.83.0/24", "cut off from other nodes", "If that subnet was this node's, delete these pods", "another program made the bridge"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not have %q", got, want)
		}
	}
}
