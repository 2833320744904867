package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// Unreachable has the ICMP errors about datagrams to a peer: the number, and the sender and reason of the
// last. Anyone who knows the ports can forge such messages, so they are reported but decide nothing.
type Unreachable struct {
	// Count is the number of messages, and Last the time of the last one.
	Count uint64
	Last  time.Time
	// By is the sender of the last message, and Why its reason.
	By  netip.Addr
	Why port.UnreachableWhy
	// Doubtful means that packets seem to arrive nevertheless; see Table.doubtful.
	Doubtful bool
}

// unreachableState keeps the ICMP messages about one peer. It is safe for concurrent use.
type unreachableState struct {
	count  atomic.Uint64
	since  atomic.Int64 // Unix nanoseconds: the first message not followed by a gap of unreachableGap
	last   atomic.Int64 // Unix nanoseconds
	logged atomic.Bool
	from   atomic.Pointer[icmpReport]
}

type icmpReport struct {
	by  netip.Addr
	why port.UnreachableWhy
}

const (
	// unreachableDelay is how long messages must keep coming before they are logged. A peer whose daemon
	// restarts causes some too.
	unreachableDelay = 8 * time.Second
	// unreachableGap is the longest gap between messages meanwhile. Without other traffic only probes cause
	// messages, about one every ten seconds.
	unreachableGap = 25 * time.Second
	// unreachableReset is how long no message must come before messages may be logged again.
	unreachableReset = time.Minute
)

// note records a message, and reports whether to log it: messages keep coming and none was logged, or the
// sender or reason changed. A doubtful message is not logged yet. note allocates only for a changed message,
// and at most once a second, because anyone can send them.
func (r *unreachableState) note(b icmpReport, doubtful bool, now int64) (news bool) {
	r.count.Add(1)
	before := r.last.Swap(now)
	if now-before > int64(unreachableGap) {
		r.since.Store(now)
	}
	if now-before > int64(unreachableReset) {
		r.logged.Store(false)
	}
	if was := r.from.Load(); was == nil || *was != b && now-before > int64(time.Second) {
		fresh := b // b itself does not escape, so that unchanged messages do not allocate
		r.from.Store(&fresh)
		r.logged.Store(false)
	}
	return !doubtful && now-r.since.Load() >= int64(unreachableDelay) && r.logged.CompareAndSwap(false, true)
}

// doubtful reports whether a message does not prove that packets are lost. A kernel with the module tunnel4
// and no IP-in-IP device answers such a packet with "port unreachable", even if a raw socket received it
// (tunnel4_rcv in net/ipv4/tunnel4.c). The sit and IPsec modules load tunnel4. A firewall that rejects the
// packet answers the same, so the message is believed if nothing arrives from the peer either.
func (t *Table) doubtful(p *Peer, b icmpReport, now int64) bool {
	return t.format == encap.FormatIPIP && b.why == port.UnreachablePort && b.by == p.spec.Addr &&
		now-p.state.lastRx.Load()*int64(time.Second) < int64(unreachableGap)
}

// get returns what was recorded.
func (r *unreachableState) get() (u Unreachable) {
	if was := r.from.Load(); was != nil {
		u = Unreachable{Count: r.count.Load(), Last: time.Unix(0, r.last.Load()), By: was.by, Why: was.why}
	}
	return u
}

// noteUnreachable records an ICMP error about a datagram to a peer, and logs it if it is news.
func (w *worker) noteUnreachable(peer *Peer, e port.SendError) {
	report := icmpReport{e.By, e.Why}
	if !peer.state.unreachable.note(report, w.table.doubtful(peer, report, w.now), w.now) {
		return
	}
	if n, ok := w.logLimit.allow(w.now); ok {
		w.engine.log.Warn("ICMP says that datagrams do not reach a peer", "event", port.EventPeerUnanswering,
			"peer", peer.spec.Name, "addr", e.Dst, "says", e.Why.String(), "by", e.By, "left_out", n)
	}
}
