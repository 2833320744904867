package routing

import (
	"weft/lease"
	"weft/routing/hostrules"
	"weft/tunnel"
)

// OverlayGuard says what a network config needs of the rules about the overlay's port. kernel
// says that the kernel listens on it, not tunnel, which tells peers from strangers itself; underlay is the
// link that datagrams come in by.
func OverlayGuard(c lease.NetworkConfig, kernel bool, underlay string) hostrules.Guard {
	switch c.BackendType {
	case typeUDP:
		if o, err := ParseUDPConfig(c); err == nil {
			return hostrules.Guard{Port: o.Port, Underlay: underlay}
		}
	case typeVXLAN, typeAuto:
		if o, err := parseVXLAN(c); err == nil {
			return hostrules.Guard{Port: o.Port, Underlay: underlay, Peers: kernel && o.SourceCheck != tunnel.CheckOff}
		}
	}
	return hostrules.Guard{}
}
