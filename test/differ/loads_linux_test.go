package differ

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/port"
)

// superEvery is how many loads there are to a superpacket, which stands for 24 packets in the mean.
const superEvery = 8

// header is what the kernel has in front of a packet of a TUN or TAP with IFF_VNET_HDR, struct
// virtio_net_hdr.
type header [10]byte

// joined is the header of a superpacket of one kind whose segments' payload is size bytes long, and whose
// transport header, with a partial checksum at offset sum, begins at l4 and ends at end.
func joined(kind uint8, l4, end, sum, size int) (h header) {
	h[0], h[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, kind
	for i, v := range []int{end, size, l4, sum} {
		binary.NativeEndian.PutUint16(h[2+2*i:], uint16(v))
	}
	return h
}

// load is what weft's host is given in one write: a packet, or a superpacket that stands for several. The
// kernel's is given its parts, one by one: each packet by itself where that is the same, and else the
// superpacket too.
type load struct {
	header, partHeader header
	data               []byte
	parts              packets
	segments           int // the packets of a superpacket that is not given in parts
}

// packets is how many a load stands for.
func (l *load) packets() int { return max(l.parts.len(), l.segments) }

func (l *load) reset() {
	l.header, l.partHeader, l.data, l.segments = header{}, header{}, l.data[:0], 0
	l.parts.reset()
}

// single is a load of one packet.
func single(b []byte) (l load) {
	l.data = bytes.Clone(b)
	l.parts.add(l.data)
	return l
}

// roll makes of l the load with the number n of a run.
func (l *load) roll(d dice, way direction, seed, n uint64) {
	l.reset()
	d.reset(seed, n)
	way.make(d, l)
}

// without is the load without one of its parts. Of a superpacket that is given to both there is none.
func (l *load) without(i int) (fewer load, ok bool) {
	u := underlay(l.data[12] == 0x86)
	for j := range l.parts.len() {
		if j != i {
			fewer.parts.add(l.parts.at(j))
		}
	}
	return fewer, l.segments == 0 && u.joinFrames(&fewer)
}

// arrives makes a frame of the peer, or many of one flow that the host's device has joined, as GRO and a
// sender's USO do.
func (u underlay) arrives(d dice, l *load) {
	if !d.one(superEvery) {
		l.data = u.arriving(d, l.data)
		l.parts.add(l.data)
		return
	}
	template := append(make([]byte, u.inner()), d.inner(nil, d.one(2), peerNet, ourNet, 1430)...)
	if d.one(2) { // of full size, as most are
		template = append(make([]byte, u.inner()), d.inner(nil, d.one(2), peerNet, ourNet, 1430)...)
	}
	u.frameAround(d, template)
	n := min(2+d.IntN(44), 64000/(len(template)-u.l4()))
	ids, faults := d.IntN(4), d.one(2)
	for i := range n {
		f := u.next(d, template, i, ids)
		if i == n-1 && d.one(2) {
			f = u.shorter(d, f)
		}
		if faults && d.one(8) {
			f = u.faulty(d, f)
		}
		u.lengths(f)
		u.seal(f, false)
		l.parts.add(f)
	}
	u.joinFrames(l)
}

// next is the frame that follows i after the first: the next bytes of a TCP connection, and of other
// protocols the next packet.
func (u underlay) next(d dice, template []byte, i, ids int) []byte {
	f := bytes.Clone(template)
	p := f[u.inner():]
	l4, proto, six := encap.IPv6Len, p[6], true
	if p[0]>>4 == 4 {
		l4, proto, six = int(p[0]&15)*4, p[9], false
		switch ids {
		case 0, 1:
			binary.BigEndian.PutUint16(p[4:], binary.BigEndian.Uint16(p[4:])+uint16(i))
		case 2:
			binary.BigEndian.PutUint16(p[4:], uint16(d.Uint32()))
		}
		sum4(p)
	}
	seg := p[l4:]
	if proto == encap.ProtoTCP && len(seg) >= 20 {
		binary.BigEndian.PutUint32(seg[4:], binary.BigEndian.Uint32(seg[4:])+uint32(i*(len(seg)-20)))
		seg[13] = 0x10
		if d.one(16) {
			seg[13] |= 8
		}
	}
	sumTransport(p, l4, proto, six)
	return f
}

// sumTransport makes the checksum of a TCP or UDP segment right.
func sumTransport(p []byte, l4 int, proto byte, six bool) {
	if l4 > len(p) {
		return
	}
	seg, at := p[l4:], 16
	switch {
	case proto == encap.ProtoUDP && len(seg) >= 8:
		at = 6
	case proto != encap.ProtoTCP || len(seg) < 20:
		return
	}
	seg[at], seg[at+1] = 0, 0
	sum := ^fold(pseudoSum(p, six, proto, len(seg)) + plainSum(seg))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(seg[at:], sum)
}

// shorter cuts the end of the inner packet off, which is made right again.
func (u underlay) shorter(d dice, f []byte) []byte {
	p := f[u.inner():]
	head := encap.IPv6Len + 20
	if len(p) <= head {
		return f
	}
	p = p[:head+d.IntN(len(p)-head)]
	if p[0]>>4 == 4 {
		finish4(p)
		sumTransport(p, int(p[0]&15)*4, p[9], false)
	} else {
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-encap.IPv6Len))
		sumTransport(p, encap.IPv6Len, p[6], true)
	}
	return f[:u.inner()+len(p)]
}

// faulty changes a frame behind its UDP header and keeps its length, since a device joins only frames of one
// length.
func (u underlay) faulty(d dice, f []byte) []byte {
	was := len(f)
	from := u.inner()
	if d.one(4) {
		from = u.vxlan()
	}
	f = d.mutate(f, from, 1+d.IntN(2))
	if len(f) < was {
		f = append(f, make([]byte, was-len(f))...)
	}
	f = f[:was]
	p := f[u.inner():]
	if !d.one(4) && p[0]>>4 == 4 {
		sum4(p)
	}
	if d.one(2) && p[0]>>4 == 4 && len(p) >= encap.IPv4Len {
		sumTransport(p, int(p[0]&15)*4, p[9], false)
	} else if d.one(2) && p[0]>>4 == 6 {
		sumTransport(p, encap.IPv6Len, p[6], true)
	}
	return f
}

// joinFrames makes of the parts, of which only the last may be shorter, the superpacket that a device makes
// of them. It says whether that can be done.
func (u underlay) joinFrames(l *load) bool {
	if l.parts.len() == 0 {
		return false
	}
	first := l.parts.at(0)
	l.data = append(l.data[:0], first...)
	for i := 1; i < l.parts.len(); i++ {
		f := l.parts.at(i)
		if len(f) > len(first) || len(f) < len(first) && i < l.parts.len()-1 {
			return false
		}
		l.data = append(l.data, f[u.vxlan():]...)
	}
	if l.parts.len() == 1 {
		l.header = header{}
		return true
	}
	u.lengths(l.data)
	u.partial(l.data)
	l.header = joined(unix.VIRTIO_NET_HDR_GSO_UDP_L4, u.l4(), u.vxlan(), 6, len(first)-u.vxlan())
	return true
}

// partial leaves the UDP checksum of a frame to a device, and makes the header's right.
func (u underlay) partial(f []byte) {
	binary.BigEndian.PutUint16(f[u.l4()+6:], fold(pseudoSum(f[ip:], bool(u), encap.ProtoUDP, len(f)-u.l4())))
	if !u {
		sum4(f[ip:])
	}
}

// leaves makes a packet of a pod of ours, or a superpacket, which a pod's connection over a virtual wire is
// made of.
func leaves(d dice, l *load) {
	if !d.one(superEvery) {
		l.data = leaving(d, l.data)
		l.parts.add(l.data)
		return
	}
	six, udp := d.one(2), d.one(3)
	var p []byte
	if six {
		p = append(p, make([]byte, encap.IPv6Len)...)
		binary.BigEndian.PutUint32(p, 6<<28|uint32(d.tos())<<20|uint32(d.IntN(1<<20)))
		p[7] = d.ttl()
		d.addr(p[8:24], ourNet)
		d.addr(p[24:40], peerNet)
	} else {
		p = append(p, make([]byte, encap.IPv4Len)...)
		p[0], p[1], p[6], p[8] = 0x45, d.tos(), byte(d.IntN(2))<<6, d.ttl()
		binary.BigEndian.PutUint16(p[4:], uint16(d.Uint32()))
		d.addr(p[12:16], ourNet)
		d.addr(p[16:20], peerNet)
	}
	l4, proto, head, sum := len(p), byte(encap.ProtoTCP), 20, 16
	kind := uint8(unix.VIRTIO_NET_HDR_GSO_TCPV4)
	switch {
	case udp:
		proto, head, sum, kind = encap.ProtoUDP, 8, 6, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	case six:
		kind = unix.VIRTIO_NET_HDR_GSO_TCPV6
	}
	options := 0
	if !udp && d.one(2) {
		options = 4 * d.IntN(6)
	}
	most := 1430 - l4 - head - options
	size := most
	if d.one(2) {
		size = 1 + d.IntN(most)
	}
	n := min(2+d.IntN(44), 64000/size)
	p = append(p, make([]byte, head+options)...)
	d.fill(p[l4:])
	payload := (n-1)*size + 1 + d.IntN(size)
	p = append(p, make([]byte, payload)...)
	d.fill(p[len(p)-payload:][:min(payload, 4*size)])
	seg := p[l4:]
	if udp {
		binary.BigEndian.PutUint16(seg[4:], uint16(len(seg)))
	} else {
		seg[12] = byte((head+options)/4) << 4
		seg[13] = [...]byte{0x10, 0x18, 0x11, 0x19, 0x90, 0x50, 0x10, byte(d.Uint32())}[d.IntN(8)]
		if seg[13]&0x80 != 0 {
			kind |= unix.VIRTIO_NET_HDR_GSO_ECN
		}
	}
	if six {
		p[6] = proto
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-l4))
	} else {
		p[9] = proto
		finish4(p)
	}
	binary.BigEndian.PutUint16(seg[sum:], fold(pseudoSum(p, six, proto, len(seg))))
	l.header = joined(kind, l4, l4+head+options, sum, size)
	l.partHeader, l.segments = l.header, n
	l.data = append(l.data, p...)
	l.parts.add(l.data)
}

// exercised fails if a path did not have what it was to have, and says how much it had.
func (c *comparison) exercised(r *rig) {
	now, was := r.engine.Stats(), c.before[r]
	flow, before := now.Ingress, was.Ingress
	if c.way.name == "encapsulation" {
		flow, before = now.Egress, was.Egress
	}
	var used strings.Builder
	for _, o := range now.Offloads {
		calls, segments := o.Calls, o.Segments
		for _, b := range was.Offloads {
			if b.Offload == o.Offload {
				calls, segments = calls-b.Calls, segments-b.Segments
			}
		}
		fmt.Fprintf(&used, ", %v %d of %d packets", o.Offload, calls, segments)
	}
	c.t.Logf("%s: %d received, %d delivered%s", r.name, flow.Received-before.Received,
		flow.Delivered-before.Delivered, used.String())
	if got := flow.Delivered - before.Delivered; got < c.passed/2 && !c.t.Failed() {
		c.t.Errorf("%s delivered %d packets, and the kernel %d", r.name, got, c.passed)
	}
	for _, o := range c.superOffloads(r) {
		if !strings.Contains(used.String(), o.String()+" ") || strings.Contains(used.String(), o.String()+" 0 ") {
			c.t.Errorf("%s had no superpacket by %v%s", r.name, o, used.String())
		}
	}
}

// superOffloads are those that a path has to have used.
func (c *comparison) superOffloads(r *rig) []port.Offload {
	switch {
	case r.name == tunnel.PathPortable.String():
		return nil
	case c.way.name == "encapsulation":
		return []port.Offload{port.OffloadTSO, port.OffloadUSO, port.OffloadGSO}
	}
	return []port.Offload{port.OffloadGRO, port.OffloadTCP}
}

// sameByFlow says whether weft's packets are the kernel's, and those of each flow in the same order, and why
// they are not byte for byte. Between flows there is no order: what may yet be joined waits until the batch
// ends, as in the kernel's GRO. Of what was joined the fields with more than one right value may be another
// one of them.
func sameByFlow(got, want *packets) (why reason, ok bool) {
	if got.len() != want.len() {
		return notTold, false
	}
	if bytes.Equal(got.data, want.data) {
		return notTold, true
	}
	return rejoined, slices.EqualFunc(got.byFlow(), want.byFlow(), sameJoined)
}

// sameJoined says whether got is want, or what joining and cutting again may make of it: of a packet with DF
// the identification counts up (RFC 6864 section 4.1), and of the two forms of zero in one's complement a
// transport checksum is the other.
func sameJoined(got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	if len(got) != len(want) || len(want) < encap.IPv4Len+encap.UDPLen || want[0]>>4 == 6 &&
		len(want) < encap.IPv6Len+encap.UDPLen {
		return false
	}
	got, want = bytes.Clone(got), bytes.Clone(want)
	l4, proto := encap.IPv6Len, want[6]
	if want[0]>>4 == 4 {
		if want[0] != 0x45 {
			return false
		}
		l4, proto = encap.IPv4Len, want[9]
		if want[6] == 0x40 && want[7] == 0 && fold(plainSum(got[:encap.IPv4Len])) == 0xffff {
			for _, p := range [][]byte{got, want} {
				clear(p[4:6])
				clear(p[10:12])
			}
		}
	}
	at := l4 + 6
	if proto == encap.ProtoTCP {
		at = l4 + 16
	}
	for _, p := range [][]byte{got, want} {
		if len(p) >= at+2 && p[at] == 0xff && p[at+1] == 0xff {
			p[at], p[at+1] = 0, 0
		}
	}
	return bytes.Equal(got, want)
}

// byFlow are the packets flow by flow.
func (p *packets) byFlow() (l [][]byte) {
	for i := range p.len() {
		l = append(l, p.at(i))
	}
	slices.SortStableFunc(l, func(a, b []byte) int { return bytes.Compare(flowOf(a), flowOf(b)) })
	return l
}

// flowOf is what tells an inner packet's flow: addresses and protocol, and the ports where they are behind a
// plain header.
func flowOf(p []byte) []byte {
	at, proto, whole := encap.IPv6Len, byte(0), true
	var addrs []byte
	switch {
	case len(p) >= encap.IPv4Len && p[0]>>4 == 4:
		at, proto, addrs, whole = int(p[0]&15)*4, p[9], p[12:20], p[6]&0x3f == 0 && p[7] == 0
	case len(p) >= encap.IPv6Len && p[0]>>4 == 6:
		proto, addrs = p[6], p[8:40]
	default:
		return p
	}
	key := append([]byte{p[0] >> 4, proto}, addrs...)
	if whole && (proto == encap.ProtoTCP || proto == encap.ProtoUDP) && len(p) >= at+4 {
		key = append(key, p[at:at+4]...)
	}
	return key
}
