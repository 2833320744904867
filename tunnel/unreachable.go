package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// Unreachable has the ICMP errors about datagrams to a peer: the number, the last sender and its reason.
// Anybody who knows the ports can forge such a message, so weft shows them and decides nothing by them.
type Unreachable struct {
	// Count is the number of messages, the last of them at Last; zero for none.
	Count uint64
	Last  time.Time
	// By is who sent the last one, and Why what it says.
	By  netip.Addr
	Why port.UnreachableWhy
	// Doubtful means that packets seem to arrive there all the same: see Table.doubts.
	Doubtful bool
}

// refusal keeps the messages about one peer. It is safe for concurrent use.
type refusal struct {
	count atomic.Uint64
	since atomic.Int64 // Unix nanoseconds: the first message with none missing for refusalGap after it
	last  atomic.Int64 // Unix nanoseconds
	said  atomic.Bool
	from  atomic.Pointer[refusedBy]
}

type refusedBy struct {
	by  netip.Addr
	why port.UnreachableWhy
}

const (
	// refusalLasts is for how long messages come before they are news: a peer whose daemon starts again sends
	// them too.
	refusalLasts = 8 * time.Second
	// refusalGap is how long they may be missing meanwhile. Without other traffic each probe brings one, about
	// every ten seconds.
	refusalGap = 25 * time.Second
	// refusalOver is for how long no message came before they may be news again.
	refusalOver = time.Minute
)

// note takes in a message, and reports whether it is news: they have come for a while and nobody was told, or
// another one than before comes. A doubtful one is none, and may become news later. It allocates only if it
// is another one, and at most each second: whoever sends them may want it to.
func (r *refusal) note(b refusedBy, doubtful bool, now int64) (news bool) {
	r.count.Add(1)
	before := r.last.Swap(now)
	if now-before > int64(refusalGap) {
		r.since.Store(now)
	}
	if now-before > int64(refusalOver) {
		r.said.Store(false)
	}
	if was := r.from.Load(); was == nil || *was != b && now-before > int64(time.Second) {
		fresh := b // b itself stays on the stack of those that are no news
		r.from.Store(&fresh)
		r.said.Store(false)
	}
	return !doubtful && now-r.since.Load() >= int64(refusalLasts) && r.said.CompareAndSwap(false, true)
}

// doubts reports whether a message says nothing about whether packets arrive. A kernel with the module
// tunnel4 and without a device for IP in IP (sit and IPsec bring the module) answers such a packet with "port
// unreachable", although there is no port, and although a raw socket has taken it: tunnel4_rcv in
// net/ipv4/tunnel4.c. A rule that rejects it says the same, so it is believed if nothing arrives from the
// peer either.
func (t *Table) doubts(p *Peer, b refusedBy, now int64) bool {
	return t.format == encap.FormatIPIP && b.why == port.UnreachablePort && b.by == p.spec.Addr &&
		now-p.state.lastRx.Load()*int64(time.Second) < int64(refusalGap)
}

// get returns what was said; its zero value if nothing was.
func (r *refusal) get() (u Unreachable) {
	if was := r.from.Load(); was != nil {
		u = Unreachable{Count: r.count.Load(), Last: time.Unix(0, r.last.Load()), By: was.by, Why: was.why}
	}
	return u
}

// refused takes in that ICMP says that a datagram to a peer does not arrive.
func (w *worker) refused(peer *Peer, e port.SendError) {
	said := refusedBy{e.By, e.Why}
	if !peer.state.refusal.note(said, w.table.doubts(peer, said, w.now), w.now) {
		return
	}
	if n, ok := w.saying.may(w.now); ok {
		w.engine.log.Warn("ICMP says that datagrams do not reach a peer", "event", port.EventPeerUnanswering,
			"peer", peer.spec.Name, "addr", e.Dst, "says", e.Why.String(), "by", e.By, "left_out", n)
	}
}
