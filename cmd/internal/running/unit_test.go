package running

import (
	"slices"
	"testing"
)

func TestVariablesOfAUnit(t *testing.T) {
	t.Parallel()
	if got := variables("# x\nWEFTD_IFACE=eth1\n FLANNELD_IP_MASQ=\"true\"\nnonsense\n"); !slices.Equal(got, []string{"WEFTD_IFACE=eth1", "FLANNELD_IP_MASQ=true"}) {
		t.Errorf("variables: %q", got)
	}
	for of, want := range map[string]bool{"WEFTD_IFACE=x": true, "FLANNELD_IFACE=x": true, "WEFTD_CONTROL_SOCKET=x": false, "PATH=x": false} {
		if Mentions([]string{of}) != want {
			t.Errorf("%s: not %t", of, want)
		}
	}
}
