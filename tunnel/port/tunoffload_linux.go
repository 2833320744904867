package port

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// Flags of TUNSETOFFLOAD (linux/if_tun.h). An unknown bit is EINVAL, which is the probe. USO is since Linux
// 6.2, and only for both families at once.
const (
	tunCsum = 0x01
	tunTSO  = 0x02 | 0x04 // IPv4, IPv6
	// A burst marked CWR would otherwise be cut before it reaches us.
	tunTSOECN = 0x08
	tunUSO    = 0x20 | 0x40 // IPv4, IPv6
)

// OffloadTUN is a TUN device as a port that moves superpackets: every packet has a
// virtio-net header in front (path socket). It is safe for concurrent use.
type OffloadTUN struct {
	*TUN
	log                *slog.Logger
	tso, uso, tcp, udp OffloadSwitch
}

// OpenOffloadTUN is OpenTUN with the offloads that the kernel has and o does not
// switch off. Without any it still carries packets.
func OpenOffloadTUN(o TUNOptions) (*OffloadTUN, error) {
	var t *TUN
	var err error
	if o.From != nil {
		t, err = keptTUN(o, KindOffload)
	} else {
		t, err = openTUN(o, unix.IFF_VNET_HDR)
	}
	if err != nil {
		return nil, err
	}
	return offloadTUN(t, o.Off, o.Logger)
}

// probe climbs down the ladder until the kernel agrees.
func (t *OffloadTUN) probe(off OffloadSet) {
	set := func(bits int) bool { return unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, bits) == nil }
	csum := set(tunCsum)
	tso := csum && (set(tunCsum|tunTSO|tunTSOECN) || set(tunCsum|tunTSO))
	uso := tso && set(tunCsum|tunTSO|tunUSO)
	t.tso.set(OffloadTSO, off, tso)
	t.uso.set(OffloadUSO, off, uso)
	t.tcp.set(OffloadTCP, off, tso) // what a TUN can hand out it also takes
	t.udp.set(OffloadUDP, off, uso)
	bits := 0
	if t.tso.On() {
		bits |= tunCsum | tunTSO | tunTSOECN
	}
	if t.uso.On() {
		bits |= tunCsum | tunUSO
	}
	if !set(bits) && !set(bits&^tunTSOECN) {
		t.tso.lose(t.log, t.name, unix.EINVAL)
		t.uso.lose(t.log, t.name, unix.EINVAL)
		set(0)
	}
}

// LeavesPartial implements Super.
func (t *OffloadTUN) LeavesPartial(Recv) bool { return true }

// Offloads reports the device's four.
func (t *OffloadTUN) Offloads() []OffloadStats {
	return []OffloadStats{t.tso.stats(), t.uso.stats(), t.tcp.stats(), t.udp.stats()}
}

// Queues implements Port.
func (t *OffloadTUN) Queues() []Queue { return t.queuesOf(t.readFrom) }

func (t *OffloadTUN) readFrom(fd int, r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		n, errno := read(fd, p.buf[p.off-encap.VNetHdrLen:])
		switch {
		case errno == 0 && n >= encap.VNetHdrLen:
			n -= encap.VNetHdrLen
			p.end = p.off + n
			t.describe(p)
			r.Commit(n)
		case errno == unix.EAGAIN, errno == unix.EIO, errno == 0:
			return nil
		case errno == unix.EINTR:
		default:
			return fmt.Errorf("read %s: %w", t.name, errno)
		}
	}
}

// describe takes what the virtio-net header says about a packet. HdrLen is only a
// hint, and wrong for forwarded packets.
func (t *OffloadTUN) describe(p *Packet) {
	h, err := encap.ParseVNetHdr(p.buf[p.off-encap.VNetHdrLen:])
	if err != nil {
		return
	}
	if h.Flags&encap.VNetNeedsCsum != 0 {
		p.Partial, p.CsumStart, p.CsumOffset = true, int(h.CsumStart), int(h.CsumOffset)
	}
	switch h.GSOType &^ encap.VNetGSOECN {
	case encap.VNetGSOTCPv4, encap.VNetGSOTCPv6:
		p.SegSize = int(h.GSOSize)
		p.countFor(&t.tso)
	case encap.VNetGSOUDPL4:
		p.SegSize = int(h.GSOSize)
		p.countFor(&t.uso)
	}
}

// countFor counts a superpacket that came by o. One that cannot be cut is dropped later.
func (p *Packet) countFor(o *OffloadSwitch) {
	if super, _, ok := p.ParseSuper(); ok {
		o.used(super.Segments)
	}
}

// WriteBatch implements Port: packets of one flow that follow one another become
// one superpacket, gathered from where they are by one writev(2).
func (t *OffloadTUN) WriteBatch(r *Ring, ps []*Packet) {
	m := &r.io.merge
	m.ring = r
	for _, p := range ps {
		m.add(t, p)
	}
	m.flush(t)
}
