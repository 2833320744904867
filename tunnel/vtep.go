package tunnel

import (
	"fmt"

	"weft/encap"
	"weft/tunnel/port"
)

// vtep is what format vxlan has before every inner packet: this node's end of it. The zero vtep
// is that of a table of format ip.
type vtep struct {
	vni        uint32
	mac4, mac6 encap.MAC
}

// setHead builds what goes before an inner packet to the peer, whose family is still to be filled in.
func (p *Peer) setHead(own vtep) error {
	src := own.mac4
	if p.spec.Addr.Is6() {
		src = own.mac6
	}
	for _, m := range []encap.MAC{p.spec.MAC, src} {
		if m == (encap.MAC{}) || m[0]&1 != 0 {
			return fmt.Errorf("address %v is no VTEP's", m)
		}
	}
	b, err := encap.AppendVXLAN(p.head[:0],
		encap.VXLAN{VNI: own.vni, Ethernet: encap.Ethernet{Dst: p.spec.MAC, Src: src}})
	p.headLen = len(b)
	return err
}

// putHead puts the peer's VXLAN and Ethernet headers before an inner packet, whose IP version is given.
func (p *Peer) putHead(to *port.Packet, version uint8) {
	b := to.MakeHead(p.headLen)
	copy(b, p.head[:])
	b[len(b)-2], b[len(b)-1] = encap.EtherTypeIPv4>>8, encap.EtherTypeIPv4&0xff
	if version == 6 {
		b[len(b)-2], b[len(b)-1] = encap.EtherTypeIPv6>>8, encap.EtherTypeIPv6&0xff
	}
}

// unwrap takes the headers of format vxlan off. Only the network's own number and a frame to this
// very VTEP are accepted: the neighbour tables of all nodes are complete, so that none has a
// reason to broadcast.
func (v *vtep) unwrap(p *port.Packet) (port.DropReason, bool) {
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

// carries says whether a frame of that type holds an IP packet of that version.
func carries(etherType uint16, version byte) bool {
	return etherType == encap.EtherTypeIPv4 && version == 4 || etherType == encap.EtherTypeIPv6 && version == 6
}
