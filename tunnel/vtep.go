package tunnel

import (
	"fmt"

	"weft/encap"
	"weft/tunnel/port"
)

// vtep is this node's VXLAN tunnel endpoint. It is zero in other formats.
type vtep struct {
	vni        uint32
	mac4, mac6 encap.MAC
}

// setHeader builds the header for inner packets to the peer, except for the inner family.
func (p *Peer) setHeader(own vtep) error {
	src := own.mac4
	if p.spec.Addr.Is6() {
		src = own.mac6
	}
	for _, m := range []encap.MAC{p.spec.MAC, src} {
		if m == (encap.MAC{}) || m[0]&1 != 0 {
			return fmt.Errorf("%v is no VTEP address", m)
		}
	}
	b, err := encap.AppendVXLAN(p.header[:0],
		encap.VXLAN{VNI: own.vni, Ethernet: encap.Ethernet{Dst: p.spec.MAC, Src: src}})
	p.headerLen = len(b)
	return err
}

// putHeader puts the peer's VXLAN and Ethernet headers before an inner packet of that IP version.
func (p *Peer) putHeader(to *port.Packet, version uint8) {
	b := to.Prepend(p.headerLen)
	copy(b, p.header[:])
	b[len(b)-2], b[len(b)-1] = encap.EtherTypeIPv4>>8, encap.EtherTypeIPv4&0xff
	if version == 6 {
		b[len(b)-2], b[len(b)-1] = encap.EtherTypeIPv6>>8, encap.EtherTypeIPv6&0xff
	}
}

// decapsulate removes the VXLAN and Ethernet headers. It accepts only the network's VNI and frames to this
// VTEP. All nodes have complete neighbour tables, so none needs to broadcast.
func (v *vtep) decapsulate(p *port.Packet) (port.DropReason, bool) {
	h, inner, err := encap.ParseVXLAN(p.Bytes())
	if err != nil {
		return port.DropMalformed, false
	}
	own := v.mac4
	if p.Outer.Addr().Is6() {
		own = v.mac6
	}
	switch {
	case h.VNI != v.vni:
		return port.DropForeignVNI, false
	case h.Dst != own:
		return port.DropForeignMAC, false
	case len(inner) == 0 || !carries(h.Type, inner[0]>>4):
		return port.DropMalformed, false
	}
	p.Strip(encap.VXLANOverhead)
	return 0, true
}

// carries reports whether the EtherType is that of the IP version.
func carries(etherType uint16, version byte) bool {
	return etherType == encap.EtherTypeIPv4 && version == 4 || etherType == encap.EtherTypeIPv6 && version == 6
}
