package daemon

import (
	"fmt"

	"weft/cmd/internal/control"
	"weft/tunnel"
)

// offloadNotes say what the underlay's link breaks of what was left to it.
func offloadNotes(l []control.Offload, link string) (notes []string) {
	for _, o := range l {
		if o.State == tunnel.OffloadBroken.String() {
			notes = append(notes, fmt.Sprintf("%s is off, since link %s breaks datagrams that are sent in one call, as a peer has found: packets pass, and bulk costs more; "+
				"Linux 7.0 to 7.1.4 does so with some devices: update the kernel, or have it cut them in front of the device: ethtool -K %s tx-udp-segmentation off, after which weft tries again", o.Name, link, link))
		}
	}
	return notes
}
