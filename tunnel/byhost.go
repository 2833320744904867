package tunnel

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
	"weft/tunnel/port"
)

// byHost reports whether an egress packet to a pod or a peer must go to the host's TUN, because it is a reply
// of a flow that the host's NAT has translated. It also records such flows:
//
//   - Pod A sends to a Service address. No pod or peer has it, so the packet goes to the host. The host
//     translates the destination to pod B, on any node, and routes the packet back into its TUN with A as the
//     source. byHost records the flow.
//   - B's reply to A matches the flow, whether it comes from B's port or from B's node. It goes to the host's
//     TUN. The host translates it back, and routes it into the TUN again with the Service as the source. Then
//     it goes to A.
//   - A peer's pod opens a flow to a port of this node, and the host translates it to pod B here: as above.
//   - A masqueraded flow, such as one from A through a Service to A, needs no record: its replies are
//     addressed to the host.
//   - If the client sends a packet of the flow directly to B, the record is deleted: the last route counts.
func (w *decider) byHost(p *port.Packet, in *encap.Inner, d *dest) bool {
	switch {
	case d.pod == nil && d.peer == nil:
		return false
	case w.from.role == RoleHost:
		if w.source.client && (d.pod != nil || w.source.pod) {
			w.flows.Opened(p.Bytes(), in, w.now)
		}
		return false
	case w.from.pod == nil || w.set.host == nil:
		return false
	}
	return w.translated(p, in, true)
}

// translated reports whether p goes to the host's TUN because it is a reply of a translated flow. Otherwise p
// goes directly to its destination. known means that the source is verified, so that its sender may have
// opened flows through the host.
func (w *decider) translated(p *port.Packet, in *encap.Inner, known bool) bool {
	if w.flows.Empty() {
		return false
	}
	s := directFlowOf(p.Bytes(), in)
	if s.proto != 0 && s == w.lastDirect {
		return false
	}
	if w.flows.Knows(in.Dst) && w.flows.Answers(p.Bytes(), in, w.now) {
		return true
	}
	if known && w.flows.Knows(in.Src) {
		w.flows.Bypassed(p.Bytes(), in, w.now)
	}
	w.lastDirect = s
	return false
}

// directFlow is a TCP or UDP flow whose last packet went directly to its destination. The zero value is none.
type directFlow struct {
	src, dst netip.Addr
	ports    uint32
	proto    uint8
}

// directFlowOf returns the flow of a packet, or the zero directFlow if the packet is neither TCP nor UDP.
func directFlowOf(b []byte, in *encap.Inner) (s directFlow) {
	if (in.Proto == encap.ProtoTCP || in.Proto == encap.ProtoUDP) && in.L4 > 0 && !in.Fragment() &&
		len(b) >= in.L4+4 {
		s = directFlow{in.Src, in.Dst, binary.BigEndian.Uint32(b[in.L4:]), in.Proto}
	}
	return s
}
