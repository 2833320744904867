package port

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// Flags of TUNSETOFFLOAD (linux/if_tun.h). An unknown bit fails with EINVAL, so setting them is the probe.
// USO exists since Linux 6.2, only for both families together.
const (
	tunCsum = 0x01
	tunTSO  = 0x02 | 0x04 // IPv4, IPv6
	// Without it the kernel segments superpackets with CWR set.
	tunTSOECN = 0x08
	tunUSO    = 0x20 | 0x40 // IPv4, IPv6
)

// OffloadTUN is the TUN port of path socket. It moves superpackets: every packet has a virtio-net header. It
// is safe for concurrent use.
type OffloadTUN struct {
	*TUN
	log                *slog.Logger
	tso, uso, tcp, udp OffloadSwitch
}

// OpenOffloadTUN is OpenTUN with the offloads that the kernel supports and o.Off does not switch off. Without
// any offload it still carries packets.
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

// probe finds the largest set of offloads that the kernel accepts, and sets those that are not switched off.
func (t *OffloadTUN) probe(off OffloadSet) {
	set := func(bits int) bool { return unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, bits) == nil }
	csum := set(tunCsum)
	tso := csum && (set(tunCsum|tunTSO|tunTSOECN) || set(tunCsum|tunTSO))
	uso := tso && set(tunCsum|tunTSO|tunUSO)
	t.tso.set(OffloadTSO, off, tso)
	t.uso.set(OffloadUSO, off, uso)
	t.tcp.set(OffloadTCP, off, tso) // a TUN accepts what it can deliver
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

// Offloads implements Super.
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

// describe describes p from its virtio-net header. It ignores HdrLen, which is only a hint and wrong for
// forwarded packets.
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
		p.countSuper(&t.tso)
	case encap.VNetGSOUDPL4:
		p.SegSize = int(h.GSOSize)
		p.countSuper(&t.uso)
	}
}

// countSuper counts a superpacket that o delivered. An invalid one is dropped later.
func (p *Packet) countSuper(o *OffloadSwitch) {
	if super, _, ok := p.ParseSuper(); ok {
		o.used(super.Segments)
	}
}

// WriteBatch implements Port. It coalesces consecutive packets of a flow into one superpacket, gathered from
// where they are by one writev(2).
func (t *OffloadTUN) WriteBatch(r *Ring, ps []*Packet) {
	m := &r.io.merge
	m.ring = r
	for _, p := range ps {
		m.add(t, p)
	}
	m.flush(t)
}
