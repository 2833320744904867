package tunnel

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
	"weft/tunnel/port"
)

// byHost decides whether a packet from an inner port, for a pod or a peer, goes to the host's TUN all the
// same, since it answers a flow that the host's rules have translated; it also notes such flows. Who needs
// which way:
//
//   - Pod A sends to a Service, which is no pod's and no peer's: the host has it. It translates the
//     destination to pod B, of this node or of another, and routes the packet back into its TUN, with A as
//     the source. That opens an entry.
//   - B's answer to A has an entry, whether it comes from B's port here or from B's node: it goes to the
//     host's TUN. The host translates it back and routes it into the TUN again, with the Service as its
//     source, and so it reaches A.
//   - A peer's pod opens a flow to a port of this node, which the host translates to pod B here: the same.
//   - A Service that leads to A itself, or any other that is masqueraded, needs none: the answer is to the
//     host.
//   - A packet of the flow that its client sends straight takes the entry away: the last way that it took
//     counts.
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

// translated reports whether p goes to the host's TUN since it answers a flow of the client that it is for.
// Otherwise it goes straight; known says that its source is the sender's, who may have opened flows by way
// of the host.
func (w *decider) translated(p *port.Packet, in *encap.Inner, known bool) bool {
	if w.flows.Empty() {
		return false
	}
	s := straightOf(p.Bytes(), in)
	if s.proto != 0 && s == w.straight {
		return false
	}
	if w.flows.Knows(in.Dst) && w.flows.Answers(p.Bytes(), in, w.now) {
		return true
	}
	if known && w.flows.Knows(in.Src) {
		w.flows.Bypassed(p.Bytes(), in, w.now)
	}
	w.straight = s
	return false
}

// straight is a flow of TCP or UDP whose last packet went straight; the zero straight is none.
type straight struct {
	src, dst netip.Addr
	ports    uint32
	proto    uint8
}

// straightOf is the flow of a packet; the zero straight if it is none of these.
func straightOf(b []byte, in *encap.Inner) (s straight) {
	if (in.Proto == encap.ProtoTCP || in.Proto == encap.ProtoUDP) && in.L4 > 0 && !in.Fragment() &&
		len(b) >= in.L4+4 {
		s = straight{in.Src, in.Dst, binary.BigEndian.Uint32(b[in.L4:]), in.Proto}
	}
	return s
}
