package underlay

import "net/netip"

var pfx, addr = netip.MustParsePrefix, netip.MustParseAddr
