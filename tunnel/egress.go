package tunnel

import (
	"net/netip"

	"weft/encap"
	"weft/tunnel/natflow"
	"weft/tunnel/port"
)

// egress decides about a batch that was read from an inner port, and delivers it.
func (w *worker) egress() {
	packets := w.ring.Batch()
	for i := range packets {
		p := &packets[i]
		d := w.decideOut(p)
		w.deliver(p, d)
		w.flow.Received += uint64(p.Segments)
		w.flow.ReceivedBytes += uint64(p.Size)
	}
	w.flush()
}

// decider is all that a decision depends on beside the packet. It does no I/O.
type decider struct {
	flows *natflow.Table
	port  uint16 // of the tunnel
	batch        // what the present batch is decided with
}

// decision is what becomes of a packet.
type decision struct {
	to *attached // the port that it leaves by; of a dropped one the pod that it was for, or nil
	// peer is the node that it is sent to, or on the way in the one that sent it, nil if nobody knows; of an own
	// packet that is dropped for DropForeignSource whose address the source is.
	peer *Peer
	// limit is not 0 for an IPv4 packet that leaves in fragments of at most so many bytes; of
	// encap.ICMPTooBig it is the MTU that is reported.
	limit int
	drop  drop
}

// drop says why a packet is dropped; the zero drop is that of one which is not. Neither it nor decision has
// more than four fields, so that the compiler keeps them in registers: with seven, a small packet cost 20 ns
// more.
type drop struct {
	verdict port.Verdict
	icmp    encap.ICMPKind // what its sender is told; 0 for nothing
}

func dropFor(r port.DropReason) drop     { return drop{verdict: port.Dropped(r)} }
func dropped(r port.DropReason) decision { return decision{drop: dropFor(r)} }

// told is dropped, of a packet whose sender is told so.
func told(r port.DropReason, k encap.ICMPKind) decision {
	return decision{drop: drop{port.Dropped(r), k}}
}

func (d decision) dropped() bool           { return d.drop.verdict != port.Pending }
func (d decision) reason() port.DropReason { return d.drop.verdict.Reason() }

// decideOut decides about an inner packet, or superpacket, that was read from the host's TUN or a pod's.
// It changes the header of p as a router does, and describes in p what the receiver takes.
func (w *decider) decideOut(p *port.Packet) decision {
	in, err := p.Parse()
	if err != nil {
		return dropped(port.DropMalformed)
	}
	p.SetLen(in.TotalLen)
	p.Size = in.TotalLen
	size := in.TotalLen // of the largest packet that this is or stands for
	if p.SegSize > 0 {
		super, r, ok := p.ParseSuper()
		if !ok {
			return dropped(r)
		}
		size, p.Segments = super.SegmentLen(0), super.Segments
	}

	if in.Src == in.Dst {
		return dropped(port.DropMartian) // a host takes that for its own address coming back, and does not answer
	}
	if w.from.pod != nil {
		if r := w.leavePod(p, in); r.verdict != port.Pending {
			return decision{drop: r}
		}
	}
	if in.Src != w.source.addr {
		w.source = w.sourceOf(in.Src)
	}
	if in.Dst != w.dest.addr {
		w.dest = w.destOf(in.Dst)
	}
	to := &w.dest
	switch {
	case w.source.forged != nil && (to.peer != nil || w.from.role != RoleHost):
		// The host's rules may send a peer's packet on to a pod here. A packet for an address of ours that no
		// pod has comes back too, where no bridge has our subnet. Neither leaves this node.
		return decision{drop: dropFor(port.DropForeignSource), peer: w.source.forged}
	case isMulticast(in.Dst):
		return dropped(port.DropMulticast)
	case encap.MartianDestination(in.Dst) && !w.linkOfHost(in.Dst):
		return dropped(port.DropMartian)
	case w.byHost(p, in, to):
		return decision{to: w.set.host}
	case to.pod != nil:
		return decideForPod(to.pod, p, in, size)
	case to.peer != nil:
		return w.decideForPeer(to.peer, p, in, size)
	case w.from.pod != nil && w.set.host != nil: // not the overlay's: the host routes it on
		return decision{to: w.set.host}
	}
	return told(port.DropNoRoute, encap.ICMPNoRoute)
}

// source is what is known of an inner source; the zero source is none.
type source struct {
	addr   netip.Addr
	forged *Peer // whose it is, if it cannot be this host's
	client bool  // it is a pod's or a peer's, and the host has sent the packet on
	pod    bool  // it is a pod's of this node
}

func (w *decider) sourceOf(a netip.Addr) source {
	s := source{addr: a, forged: w.table.forged(a)}
	if w.from.role == RoleHost {
		of := w.destOf(a)
		s.client, s.pod = of.pod != nil || of.peer != nil, of.pod != nil
	}
	return s
}

// dest is where packets to an inner address go; neither a pod nor a peer if it is not the overlay's.
type dest struct {
	addr netip.Addr
	pod  *attached
	peer *Peer
}

func (w *decider) destOf(a netip.Addr) dest {
	d := dest{addr: a, pod: w.set.pod(a)}
	if d.pod == nil {
		d.peer, _ = w.table.routes.Lookup(a)
	}
	return d
}

// decideForPeer decides about a packet for peer. No packet of it is larger than size bytes.
func (w *decider) decideForPeer(peer *Peer, p *port.Packet, in *encap.Inner, size int) decision {
	if peer.state.reach.refuses(w.now) {
		return dropped(port.DropUnderlay)
	}
	under := w.set.under(peer)
	limit := peer.maxInner(w.now)
	p.Recv, p.Limit = peer.spec.Recv, limit
	if in.Version == 6 {
		// No IPv6 sender goes below that (RFC 8200 section 5), so a message that claims less, forged
		// or not, must not stop what the link itself would take.
		limit = max(limit, min(peer.maxSize, encap.MinMTU6))
	}
	// Kernels take vxlan from any source port.
	if under != nil && under.lanes > 1 && (peer.spec.Weft || peer.headLen > 0) {
		// The hash is the same for both directions of a flow: what a worker reads from its queue of the TUN then
		// tends to be of one lane, and runs are as long as without lanes.
		p.Lane = 1 + uint8(encap.FlowPairHash(p.Bytes(), *in)&uint32(under.lanes-1))
	}
	switch {
	case in.Version == 6 && !peer.inner6:
		return told(port.DropUnsupported, encap.ICMPNoRoute)
	case under == nil:
		return dropped(port.DropUnderlay)
	}
	d := decision{to: under, peer: peer}
	if size > limit {
		d.fit(p, in, limit)
	}
	return d
}

// fit makes d what a router does with p, which is larger than limit, or stands for packets that are: a
// superpacket of TCP is cut into smaller segments, what permits it is fragmented, and of all else the sender
// is told.
func (d *decision) fit(p *port.Packet, in *encap.Inner, limit int) {
	mayFragment := in.Version == 4 && !in.DF
	switch {
	case mayFragment && p.SegSize > 0 && in.Proto == encap.ProtoTCP && p.Recut(limit):
		// Smaller segments serve it better than fragments.
	case mayFragment && (p.SegSize == 0 || in.Proto == encap.ProtoUDP):
		d.limit = limit
	default:
		d.drop, d.limit = drop{port.Dropped(port.DropTooBig), encap.ICMPTooBig}, limit
	}
}

// under is the underlay by which the peer is reached; nil if there is none.
func (s *portSet) under(peer *Peer) *attached {
	if peer.spec.Addr.Is6() {
		return s.under6
	}
	return s.under4
}

// isMulticast says whether a is a group, or every host of a link.
func isMulticast(a netip.Addr) bool {
	return a.IsMulticast() || a == broadcast4
}

// broadcast4 is RFC 919's limited broadcast.
var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})
