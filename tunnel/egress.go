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

// decider is the input of a decision besides the packet. Its methods do no I/O.
type decider struct {
	flows *natflow.Table
	port  uint16 // UDP port of the tunnel
	batch        // the current batch
}

// decision is what to do with a packet.
type decision struct {
	to *attachedPort // the port that the packet leaves by; for a dropped packet the pod that it was for, or nil
	// peer is the node that the packet goes to or, on ingress, comes from; nil if unknown. For an egress packet
	// dropped with DropForeignSource it is the owner of the inner source.
	peer *Peer
	// limit, if not 0, is the largest size of the IPv4 fragments that the packet leaves in, in bytes. With
	// encap.ICMPTooBig it is the MTU that the ICMP error reports.
	limit int
	drop  drop
}

// drop is why a packet is dropped. The zero drop means that it is not. Neither drop nor decision has more
// than four fields, so that the compiler keeps them in registers. With seven, a small packet took 20 ns more.
type drop struct {
	verdict port.Verdict
	icmp    encap.ICMPKind // the ICMP error to send; 0 for none
}

func dropFor(r port.DropReason) drop     { return drop{verdict: port.Dropped(r)} }
func dropped(r port.DropReason) decision { return decision{drop: dropFor(r)} }

// droppedICMP is dropped, and sends an ICMP error to the sender.
func droppedICMP(r port.DropReason, k encap.ICMPKind) decision {
	return decision{drop: drop{port.Dropped(r), k}}
}

func (d decision) dropped() bool           { return d.drop.verdict != port.Pending }
func (d decision) reason() port.DropReason { return d.drop.verdict.Reason() }

// decideOut decides about an inner packet or superpacket that was read from the host's TUN or a pod's. It
// decrements a pod's TTL, and sets p.Recv, p.Limit and p.Lane for the receiver.
func (w *decider) decideOut(p *port.Packet) decision {
	in, err := p.Parse()
	if err != nil {
		return dropped(port.DropMalformed)
	}
	p.SetLen(in.TotalLen)
	p.Size = in.TotalLen
	size := in.TotalLen // of the largest packet that p is or stands for
	if p.SegSize > 0 {
		super, r, ok := p.ParseSuper()
		if !ok {
			return dropped(r)
		}
		size, p.Segments = super.SegmentLen(0), super.Segments
	}

	if in.Src == in.Dst {
		return dropped(port.DropMartian) // a host ignores packets with its own address as the source
	}
	if w.from.pod != nil {
		if r := w.routeFromPod(p, in); r.verdict != port.Pending {
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
		// The host may forward a peer's packet to a pod here. The host also sends back packets for an address of
		// this node that no pod has, if no bridge has the subnet. Neither may leave this node.
		return decision{drop: dropFor(port.DropForeignSource), peer: w.source.forged}
	case isMulticast(in.Dst):
		return dropped(port.DropMulticast)
	case encap.MartianDestination(in.Dst) && !w.isHostLinkLocal(in.Dst):
		return dropped(port.DropMartian)
	case w.byHost(p, in, to):
		return decision{to: w.set.host}
	case to.pod != nil:
		return decideForPod(to.pod, p, in, size)
	case to.peer != nil:
		return w.decideForPeer(to.peer, p, in, size)
	case w.from.pod != nil && w.set.host != nil: // outside of the overlay: the host routes it
		return decision{to: w.set.host}
	}
	return droppedICMP(port.DropNoRoute, encap.ICMPNoRoute)
}

// source is what is known of an inner source.
type source struct {
	addr   netip.Addr
	forged *Peer // the node that has the source, if this host must not use it
	client bool  // a pod's or a peer's address, in a packet that the host forwarded
	pod    bool  // a local pod's address
}

func (w *decider) sourceOf(a netip.Addr) source {
	s := source{addr: a, forged: w.table.forged(a)}
	if w.from.role == RoleHost {
		of := w.destOf(a)
		s.client, s.pod = of.pod != nil || of.peer != nil, of.pod != nil
	}
	return s
}

// dest is the destination of an inner address. Outside of the overlay it has neither a pod nor a peer.
type dest struct {
	addr netip.Addr
	pod  *attachedPort
	peer *Peer
}

func (w *decider) destOf(a netip.Addr) dest {
	d := dest{addr: a, pod: w.set.pod(a)}
	if d.pod == nil {
		d.peer, _ = w.table.routes.Lookup(a)
	}
	return d
}

// decideForPeer decides about a packet to peer. size is that of its largest segment, in bytes.
func (w *decider) decideForPeer(peer *Peer, p *port.Packet, in *encap.Inner, size int) decision {
	if peer.state.reach.blocks(w.now) {
		return dropped(port.DropUnderlay)
	}
	under := w.set.under(peer)
	limit := peer.maxInner(w.now)
	p.Recv, p.Limit = peer.spec.Recv, limit
	if in.Version == 6 {
		// IPv6 senders never send less than 1280 bytes (RFC 8200 section 5). A message that claims a smaller MTU,
		// forged or not, must not stop packets that the link itself carries.
		limit = max(limit, min(peer.maxSize, encap.MinMTU6))
	}
	// Kernels accept vxlan from any source port.
	if under != nil && under.lanes > 1 && (peer.spec.Weft || peer.headerLen > 0) {
		// The hash is the same for both directions of a flow. A worker's queue of the TUN therefore tends to have
		// one lane's packets, and runs are as long as without lanes.
		p.Lane = 1 + uint8(encap.FlowPairHash(p.Bytes(), *in)&uint32(under.lanes-1))
	}
	switch {
	case in.Version == 6 && !peer.inner6:
		return droppedICMP(port.DropUnsupported, encap.ICMPNoRoute)
	case under == nil:
		return dropped(port.DropUnderlay)
	}
	d := decision{to: under, peer: peer}
	if size > limit {
		d.fit(p, in, limit)
	}
	return d
}

// fit decides about p, which is larger than limit or stands for packets that are. A TCP superpacket gets
// smaller segments, a packet without DF is fragmented, and the sender of any other gets an ICMP error.
func (d *decision) fit(p *port.Packet, in *encap.Inner, limit int) {
	mayFragment := in.Version == 4 && !in.DF
	switch {
	case mayFragment && p.SegSize > 0 && in.Proto == encap.ProtoTCP && p.Resegment(limit):
		// Smaller segments are better than fragments.
	case mayFragment && (p.SegSize == 0 || in.Proto == encap.ProtoUDP):
		d.limit = limit
	default:
		d.drop, d.limit = drop{port.Dropped(port.DropTooBig), encap.ICMPTooBig}, limit
	}
}

// under returns the underlay that reaches the peer, or nil.
func (s *portSet) under(peer *Peer) *attachedPort {
	if peer.spec.Addr.Is6() {
		return s.under6
	}
	return s.under4
}

// isMulticast reports whether a is a multicast address or the limited broadcast address.
func isMulticast(a netip.Addr) bool {
	return a.IsMulticast() || a == broadcast4
}

// broadcast4 is the limited broadcast address of RFC 919.
var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})
