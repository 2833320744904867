package tunnel

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
)

// byHost decides whether a packet from an inner port, for a pod or a peer, goes to the host's TUN all the same, since it answers a flow that the
// host's rules have translated; it also notes such flows. Who needs which way:
//
//   - Pod A sends to a Service, which is no pod's and no peer's: the host has it. It translates the destination to pod B, of this node or
//     of another, and routes the packet back into its TUN, with A as the source. That opens an entry of A's.
//   - B's answer to A is in A's entries, whether it comes from B's port here or from B's node: it goes to the host's TUN. The host translates it
//     back and routes it into the TUN again, with the Service as its source, and so it reaches A.
//   - A peer's pod opens a flow to a port of this node, which the host translates to pod B here: the same, with an entry of the peer's.
//   - A Service that leads to A itself, or any other that is masqueraded, needs none: the answer is to the host.
//   - A packet of the flow that its client sends straight takes the entry away: the last way that it took counts.
func (w *worker) byHost(p *Packet, in *encap.Inner, d dest) bool {
	switch {
	case d.pod == nil && d.peer == nil:
		return false
	case w.from.role == RoleHost:
		if r := w.source.returns; r != nil && (d.pod != nil || w.source.pod) {
			w.came(r, p, in)
		}
		return false
	case w.from.pod == nil || w.set.host == nil:
		return false
	}
	return w.translated(d.returns(), &w.from.pod.returns, p, in)
}

// translated reports whether p goes to the host's TUN since it answers a flow of the client whose entries are to. Otherwise it goes straight, from the
// client whose entries are from; nil if that has none.
func (w *worker) translated(to, from *returns, p *Packet, in *encap.Inner) bool {
	if to.table.Load() == nil && (from == nil || from.table.Load() == nil) {
		return false
	}
	s := straightOf(p.Bytes(), in)
	if s.proto != 0 && s == w.straight {
		return false
	}
	if w.viaHost(to, p, in) {
		return true
	}
	if from != nil {
		w.went(from, p, in)
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
	if (in.Proto == encap.ProtoTCP || in.Proto == encap.ProtoUDP) && in.L4 > 0 && !in.Fragment() && len(b) >= in.L4+4 {
		s = straight{in.Src, in.Dst, binary.BigEndian.Uint32(b[in.L4:]), in.Proto}
	}
	return s
}

// returns are the entries of flows whose answers go to d; nil if it is neither a pod's nor a peer's.
func (d *dest) returns() *returns {
	switch {
	case d.pod != nil:
		return &d.pod.pod.returns
	case d.peer != nil:
		return &d.peer.state.returns
	}
	return nil
}

// came notes that the host handed back a packet of the client whose entries are r.
func (w *worker) came(r *returns, p *Packet, in *encap.Inner) {
	f, ok := flowOf(p.Bytes(), in)
	if !ok || !f.asks || f.kind == flowFragment {
		return
	}
	back := f.reversed()
	r.open(back.tag(w.engine.seed), &back, seconds(w.now))
}

// viaHost reports whether p, for the client whose entries are r, answers one of its flows.
func (w *worker) viaHost(r *returns, p *Packet, in *encap.Inner) bool {
	t := r.table.Load()
	if t == nil || w.set.host == nil {
		return false
	}
	f, ok := flowOf(p.Bytes(), in)
	if !ok {
		return false
	}
	sec := seconds(w.now)
	tag := f.tag(w.engine.seed)
	e := t.find(tag, sec)
	if e == nil {
		return false
	}
	if f.kind == flowWhole {
		e.touch(tag, &f, sec)
	}
	if in.MoreFragments && in.FragOffset == 0 { // the others follow it
		rest := fragmentOf(p.Bytes(), in)
		r.open(rest.tag(w.engine.seed), &rest, sec)
	}
	return true
}

// went notes that p goes straight from the client whose entries are r.
func (w *worker) went(r *returns, p *Packet, in *encap.Inner) {
	if r.table.Load() == nil {
		return
	}
	f, ok := flowOf(p.Bytes(), in)
	if !ok || !f.asks || f.kind == flowFragment {
		return
	}
	back := f.reversed()
	r.forget(back.tag(w.engine.seed), seconds(w.now))
}
