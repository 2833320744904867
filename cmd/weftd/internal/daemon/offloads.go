package daemon

import (
	"fmt"

	"weft/cmd/internal/control"
	"weft/tunnel"
)

// offloadNotes name the offloads that break packets on the underlay's link.
func offloadNotes(l []control.Offload, link string) (notes []string) {
	for _, o := range l {
		if o.State == tunnel.OffloadBroken.String() {
			notes = append(notes, fmt.Sprintf("%s is off: a peer found that datagrams sent in one call by link %s arrive broken; "+
				"packets pass one by one, so bulk costs more. Linux 7.0 to 7.1.4 does so with some devices: update the kernel, or "+
				"have it cut them in front of the device by ethtool -K %s tx-udp-segmentation off, and weft tries again",
				o.Name, link, link))
		}
	}
	return notes
}
