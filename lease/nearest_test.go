package lease_test

import (
	"strings"
	"testing"

	"weft/lease"
)

func TestNearestFindsWhatWasMeant(t *testing.T) {
	types := []string{"udp", "vxlan", "auto", "host-gw", "alloc", "extension"}
	keys := []string{"Type", "Port", "Path", "MTU", "SourceCheck", "AllowedSources", "SubnetLen", "SubnetMin",
		"SubnetMax", "Network"}
	for _, tt := range []struct {
		got, want string
		words     []string
	}{
		{"vxlna", "vxlan", types}, {"VXLAM", "vxlan", types}, {"hostgw", "host-gw", types}, {"upd", "udp", types},
		{"extention", "extension", types},
		{"wireguard", "", types}, {"x", "", types}, {"", "", types}, {strings.Repeat("vxlan", 40), "", types},
		{"SorceCheck", "SourceCheck", keys}, {"Prot", "Port", keys}, {"SubnetLenght", "SubnetLen", keys},
		{"SubnetLength", "SubnetLen", keys},
		{"Netwrok", "Network", keys}, {"port", "", keys}, {"Comment", "", keys}, {"PATH", "", keys},
	} {
		if got := lease.Nearest(tt.got, tt.words...); got != tt.want {
			t.Errorf("%.20q: got %q, want %q", tt.got, got, tt.want)
		}
	}
}
